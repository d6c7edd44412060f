// Holds a pod's namespaces and does nothing, as the first container of every pod.
//
// It stands alone in its image, because a runtime mounts nothing into that container.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}
