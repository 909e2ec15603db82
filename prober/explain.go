package prober

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// Explanation is what the prober knows of one proxy. It holds no credentials, and
// no text that came from a proxy or a target.
type Explanation struct {
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	InstanceID string `json:"instanceID"`
	Host       string `json:"host"`
	Port       int32  `json:"port"`
	// Verdict now, which may be newer than ProxyProbe.status.
	Verdict v1alpha1.Verdict `json:"verdict"`
	// Since is when the verdict became what it is; nil before the first.
	Since *time.Time `json:"since"`
	// Successes, Failures and Inconclusive are how many of them came in a row.
	Successes    int32 `json:"successes"`
	Failures     int32 `json:"failures"`
	Inconclusive int32 `json:"inconclusive"`
	// Held says why failures do not count now, "" when they do.
	Held string `json:"held,omitempty"`
	// ExitIP is the address that echo endpoints see, and SharedBy how many other
	// proxies of this prober leave by it.
	ExitIP   string `json:"exitIP,omitempty"`
	SharedBy int    `json:"exitSharedBy"`
	// NextProbe is when the next one is due; nil while one is under way.
	NextProbe *time.Time `json:"nextProbe"`
	// Probes are the newest ones, the newest first.
	Probes []ExplainedProbe `json:"probes"`
}

// ExplainedProbe is one probe, stage by stage.
type ExplainedProbe struct {
	Start         time.Time    `json:"start"`
	Outcome       string       `json:"outcome"`
	Stage         string       `json:"stage"`
	Reason        probe.Reason `json:"reason"`
	Message       string       `json:"message"`
	HTTPStatus    int          `json:"httpStatus,omitempty"`
	LatencyMillis float64      `json:"latencyMillis"`
	// StageMillis are the times of the stages that ran, by name.
	StageMillis map[string]float64 `json:"stageMillis"`
}

// Explain returns what is known of a proxy, false when this prober has none of that
// name.
func (p *Prober) Explain(namespace, name string) (Explanation, bool) {
	return p.engine.explain(types.NamespacedName{Namespace: namespace, Name: name})
}

// Explainer answers GET /debug/probes/{namespace}/{name} with an Explanation.
func (p *Prober) Explainer() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/probes/{namespace}/{name}", func(w http.ResponseWriter, r *http.Request) {
		found, ok := p.Explain(r.PathValue("namespace"), r.PathValue("name"))
		if !ok {
			http.Error(w, "this prober probes no proxy of that name; another shard may", http.StatusNotFound)
			return
		}
		body, err := json.MarshalIndent(found, "", "  ")
		if err != nil {
			http.Error(w, "the explanation cannot be encoded", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(body, '\n'))
	})
	return mux
}

func (e *engine) explain(key types.NamespacedName) (Explanation, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t, ok := e.targets[key]
	if !ok {
		return Explanation{}, false
	}
	out := Explanation{
		Namespace: key.Namespace, Name: key.Name, InstanceID: t.order.instanceID, Host: t.order.host, Port: t.order.port,
		Verdict: t.tally.verdict, Since: timeOrNil(t.tally.since),
		Successes: t.tally.successes, Failures: t.tally.failures, Inconclusive: t.tally.unsure,
		Held: t.trial, ExitIP: addrText(t.exit), SharedBy: e.sharing(t), Probes: []ExplainedProbe{},
	}
	if !known(out.Verdict) {
		out.Verdict = v1alpha1.VerdictUnknown
	}
	if t.cancel == nil {
		out.NextProbe = timeOrNil(t.due)
	}
	for _, entry := range t.recent.newestFirst() {
		out.Probes = append(out.Probes, entry.explained())
	}
	return out, true
}

// sharing counts the others that have the exit of t.
func (e *engine) sharing(t *target) int {
	n := 0
	for _, other := range e.targets {
		if other != t && t.exit.IsValid() && other.exit == t.exit {
			n++
		}
	}
	return n
}

// sharedExits counts the proxies whose exit another proxy has too.
func (e *engine) sharedExits() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	users := map[netip.Addr]int{}
	for _, t := range e.targets {
		if t.exit.IsValid() {
			users[t.exit]++
		}
	}
	shared := 0
	for _, n := range users {
		if n > 1 {
			shared += n
		}
	}
	return shared
}

func (e *entry) explained() ExplainedProbe {
	out := ExplainedProbe{
		Start: time.Unix(0, e.start).UTC(), Outcome: e.outcome.String(), Stage: e.stage.String(), Reason: e.reason, Message: e.message,
		HTTPStatus: int(e.status), LatencyMillis: float64(e.took().Microseconds()) / 1000,
		StageMillis: map[string]float64{},
	}
	for s, took := range e.stages {
		if took > 0 {
			out.StageMillis[probe.Stage(s).String()] = millis(took)
		}
	}
	return out
}

func millis(micros uint32) float64 { return float64(micros) / 1000 }

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
