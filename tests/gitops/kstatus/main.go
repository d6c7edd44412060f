// kstatus reads objects as JSON documents from its input and writes a line for each: the status that Flux and
// Helm would see, and the message. It exists so that the tests ask the library itself and not a copy of its rules.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

func main() {
	if err := run(bufio.NewReader(os.Stdin), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(input io.Reader, output io.Writer) error {
	// Numbers become int64 as in client-go, not float64: the library looks for an integer generation.
	for decoder := json.NewDecoder(input); ; {
		var document json.RawMessage
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(document); err != nil {
			return err
		}
		result, err := status.Compute(object)
		if err != nil {
			return err
		}
		fmt.Fprintf(output, "%s\t%s\n", result.Status, strings.ReplaceAll(result.Message, "\n", " "))
	}
}
