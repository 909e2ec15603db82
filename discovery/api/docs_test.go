package api

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// members lists the JSON names in a struct and the structs within it.
func members(typ reflect.Type) (out []string) {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct {
		return nil
	}
	for i := range typ.NumField() {
		f := typ.Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			out = append(out, name)
		}
		if f.Tag.Get("json") != "" || f.Anonymous {
			out = append(out, members(f.Type)...)
		}
	}
	return out
}

// TestTheReferenceIsComplete: docs/api.md names every route, field, error,
// reason and metric, and no error that there is not.
func TestTheReferenceIsComplete(t *testing.T) {
	b, err := os.ReadFile("../../docs/api.md")
	require.NoError(t, err)
	doc := string(b)
	for _, rt := range (&Server{}).routes() {
		assert.Contains(t, doc, fmt.Sprintf("`%s %s`", rt.method, rt.pattern))
	}
	for _, body := range []any{listBody{}, grantBody{}, leaseStatusBody{}, leaseListBody{}, cooldownListBody{}, endedBody{}, problem{}} {
		names := members(reflect.TypeOf(body))
		require.NotEmpty(t, names)
		for _, name := range names {
			assert.Contains(t, doc, `"`+name+`":`, "field of %T", body)
		}
	}
	for _, r := range []fleet.Reason{
		fleet.ReasonDeleting, fleet.ReasonLeasingDisabled, fleet.ReasonUnhealthy, fleet.ReasonNotReady, fleet.ReasonStatusOutdated,
		fleet.ReasonNoAddress, fleet.ReasonVerdictStale, reasonAtCapacity, reasonCooldown,
	} {
		assert.Contains(t, doc, fmt.Sprintf("| `%s` |", r))
	}
	for _, p := range lease.Policies {
		assert.Regexp(t, fmt.Sprintf("(?m)^\\| `%s` \\| .* \\| %s \\|$", p.Result, regexp.QuoteMeta(p.Why)), doc)
	}

	var documented, real []string
	for _, row := range regexp.MustCompile("(?m)^\\| (\\d{3}) \\| `(\\w+)` \\|").FindAllStringSubmatch(doc, -1) {
		documented = append(documented, row[1]+" "+row[2])
	}
	for c, kind := range problems {
		real = append(real, fmt.Sprintf("%d %s", kind.status, c))
	}
	slices.Sort(documented)
	slices.Sort(real)
	assert.Equal(t, real, documented)

	a := newAPI(t)
	a.get("/v1/proxies")
	families, err := a.reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		assert.Contains(t, doc, "`"+f.GetName())
	}
}

func TestDocumentedLimitsAreThoseOfTheCode(t *testing.T) {
	b, err := os.ReadFile("../../docs/api.md")
	require.NoError(t, err)
	doc, limits := strings.Join(strings.Fields(string(b)), " "), lease.DefaultLimits
	for _, sentence := range []string{
		fmt.Sprintf("A token has at most %d sessions that are remembered", limits.Sessions),
		fmt.Sprintf("at most %d of each", limits.Sessions),
		fmt.Sprintf("A proxy rests for at most %d targets at once, and all proxies together for %d", limits.TargetsPerProxy, limits.Targets),
		fmt.Sprintf("at most %d for single targets", limits.Targets),
		fmt.Sprintf("is among the last %d that have expired", limits.Expired),
		fmt.Sprintf("at most %d of them", limits.Expired),
		fmt.Sprintf("At most %d requests wait at once", maxWaiting),
	} {
		assert.Contains(t, doc, sentence)
	}
	schemas, _ := theContract(t).at("components", "schemas", "LeaseRequest", "properties", "session", "description")
	assert.Contains(t, schemas, fmt.Sprint(limits.Sessions))
}
