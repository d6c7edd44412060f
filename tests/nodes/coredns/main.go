// A CoreDNS with the plugins of kubeadm's Corefile that a cluster without the outside world needs.
//
// The complete program pulls in the clients of three clouds, which would double the time of its build.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func init() {
	// The order in which plugins see a query: the last one answers what is not the cluster's.
	dnsserver.Directives = []string{
		"bind", "health", "ready", "errors", "log", "cache", "kubernetes", "template",
	}
}

func main() { coremain.Run() }
