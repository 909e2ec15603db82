package prober

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/health"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// Explanation is the state of one proxy in the prober. It contains no credentials, and
// no text from a proxy or a target.
type Explanation struct {
	Namespace    string           `json:"namespace"`
	Name         string           `json:"name"`
	InstanceID   string           `json:"instanceID"`
	Host         string           `json:"host"`
	Port         int32            `json:"port"`
	Verdict      v1alpha1.Verdict `json:"verdict"`   // of the prober, which may be newer than ProxyProbe.status
	Since        *time.Time       `json:"since"`     // when the verdict last changed; nil before the first
	Successes    int32            `json:"successes"` // Successes, Failures and Inconclusive count consecutive probes
	Failures     int32            `json:"failures"`
	Inconclusive int32            `json:"inconclusive"`
	Held         string           `json:"held,omitempty"` // why failures are suppressed now, "" when they count
	// ExitIP is the address that echo endpoints see, SharedBy the number of other
	// proxies of this prober with the same one.
	ExitIP    string           `json:"exitIP,omitempty"`
	SharedBy  int              `json:"exitSharedBy"`
	NextProbe *time.Time       `json:"nextProbe"` // when the next probe is due; nil while one is in flight
	Probes    []ExplainedProbe `json:"probes"`    // the last ones, the newest first
}

// ExplainedProbe is one probe, stage by stage.
type ExplainedProbe struct {
	Start         time.Time          `json:"start"`
	Outcome       string             `json:"outcome"`
	Stage         string             `json:"stage"`
	Reason        probe.Reason       `json:"reason"`
	Message       string             `json:"message"`
	HTTPStatus    int                `json:"httpStatus,omitempty"`
	LatencyMillis float64            `json:"latencyMillis"`
	StageMillis   map[string]float64 `json:"stageMillis"` // the durations of the stages that ran, by name
}

// Explainer serves GET /debug/probes/{namespace}/{name}: an Explanation.
func (p *Prober) Explainer() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/probes/{namespace}/{name}", func(w http.ResponseWriter, r *http.Request) {
		found, ok := p.runner.explain(types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")})
		if !ok {
			http.Error(w, "this prober does not probe a proxy of that name; another shard may", http.StatusNotFound)
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

// explain returns the state of a proxy, false when this prober does not probe it.
func (r *runner) explain(key types.NamespacedName) (Explanation, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok := r.monitors[key]
	if !ok {
		return Explanation{}, false
	}
	h := &m.health
	out := Explanation{
		Namespace: key.Namespace, Name: key.Name, InstanceID: m.spec.instanceID, Host: m.spec.host, Port: m.spec.port,
		Verdict: h.Verdict, Since: timeOrNil(h.Since),
		Successes: h.Successes, Failures: h.Failures, Inconclusive: h.Inconclusive,
		Held: h.SuppressReason, SharedBy: r.sharing(m), Probes: []ExplainedProbe{},
	}
	if h.Exit.IsValid() {
		out.ExitIP = h.Exit.String()
	}
	if !health.Decided(out.Verdict) {
		out.Verdict = v1alpha1.VerdictUnknown
	}
	if m.cancel == nil {
		out.NextProbe = timeOrNil(m.place.Due)
	}
	for _, p := range h.Recent {
		out.Probes = append(out.Probes, explained(&p))
	}
	return out, true
}

// sharing counts the other proxies with the exit of m.
func (r *runner) sharing(m *monitor) int {
	n := 0
	for _, other := range r.monitors {
		if other != m && m.health.Exit.IsValid() && other.health.Exit == m.health.Exit {
			n++
		}
	}
	return n
}

// sharedExits counts the proxies whose exit is also another proxy's.
func (r *runner) sharedExits() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	users := map[netip.Addr]int{}
	for _, m := range r.monitors {
		if m.health.Exit.IsValid() {
			users[m.health.Exit]++
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

func explained(p *health.RecentProbe) ExplainedProbe {
	out := ExplainedProbe{
		Start: time.Unix(0, p.StartNanos).UTC(), Outcome: p.Outcome.String(), Stage: p.Stage.String(), Reason: p.Reason, Message: p.Message,
		HTTPStatus: int(p.HTTPStatus), LatencyMillis: float64(p.Latency().Microseconds()) / 1000,
		StageMillis: map[string]float64{},
	}
	for s, micros := range p.StageMicros {
		if micros > 0 {
			out.StageMillis[probe.Stage(s).String()] = float64(micros) / 1000
		}
	}
	return out
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
