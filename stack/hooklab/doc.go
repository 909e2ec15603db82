// Package hooklab is where tests watch hooks at work: on a real API server,
// driven by the local engine or by the real Metacontroller, with a kubelet and a
// prober that are played, so that what happens when is the test's to say.
package hooklab
