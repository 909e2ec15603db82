// Package node is a Kubernetes node without containers, for laptops and tests:
// it binds Pods to itself and runs each as a process on a loopback address of
// its own. It runs one kind of Pod, the crawl proxy: squid where it is
// installed, else the built-in proxy, with the configuration that the Pod
// carries in its environment.
package node
