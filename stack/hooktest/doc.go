// Package hooktest gives tests a lab for hooks: a real API server, driven by the stand-in or by the
// real Metacontroller, with a fake kubelet and a fake prober, so that the test controls the order
// of events. Only tests import it. Its own tests check our hooks: idempotent, unaffected by
// upgrades, within the replacement budget, and no slower than hooks without decisions.
package hooktest
