package standin

import (
	"os"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream/upstreamtest"
)

// real reports whether the end-to-end tests are to run against the real
// Metacontroller. What passes there and fails here, or the other way round, is a
// bug of the engine.
func real() bool { return os.Getenv(upstream.ProgramEnv) != "" }

// runReal starts it with our manifest.
func (c *cluster) runReal(workers int) (stop func()) {
	c.t.Helper()
	return upstreamtest.Run(c.t, c.cp, c.manifest(), upstream.Options{Workers: workers})
}
