// Package hooktest gives tests a lab to watch hooks at work in: on a real API
// server, driven by the stand-in or by the real Metacontroller, with a
// kubelet and a prober that are played, so that what happens when is the test's
// to say. Nothing but tests imports it. Its own tests hold our hooks to what
// they promise at work: quiet, unmoved by upgrades, within the replacement
// budget, and no slower than hooks that decide nothing.
package hooktest
