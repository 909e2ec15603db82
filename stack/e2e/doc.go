// Package e2e runs our manifests and our images on a real API server and a real
// node, and walks the demo's steps there. The stand-in runs in place of
// Metacontroller, over the TLS and with the token that a cluster has.
package e2e
