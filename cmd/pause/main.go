// Command pause holds the namespaces of a Pod, on the node that `make e2e` runs:
// it does nothing until it is told to end.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, "pause holds the namespaces of a Pod on the node of `make e2e`, until it gets SIGTERM. It takes no arguments.")
		os.Exit(2)
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
}
