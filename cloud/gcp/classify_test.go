package gcp

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/googleapi"
	"google.golang.org/protobuf/encoding/protojson"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

func fixtures[T any](t *testing.T, path string) []T {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var out []T
	require.NoError(t, json.Unmarshal(text, &out))
	require.NotEmpty(t, out)
	return out
}

// Section 3.1 (a): the error of a call, over the wire of the real client.
func TestErrorsOfCalls(t *testing.T) {
	type fixture struct {
		Name, Op, Reason, Message, Class string
		Status                           int
		Unsure                           bool
	}
	for _, f := range fixtures[fixture](t, "testdata/http_errors.json") {
		t.Run(f.Name, func(t *testing.T) {
			r := newRig(t, Config{}, gcestandin.Options{})
			r.gce.AddFault(gcestandin.Fault{Status: f.Status, Reason: f.Reason, Message: f.Message})
			err := r.callOnce(t, f.Op)
			assert.Equal(t, f.Class, provider.Class(err).Error())
			assert.Equal(t, f.Unsure, provider.MayHaveTakenEffect(err))
			assert.ErrorContains(t, err, f.Message)
			var g *googleapi.Error
			assert.ErrorAs(t, err, &g, "the cause is reachable")
			require.Len(t, r.gce.Calls(), 1, "nothing is retried behind our back")
		})
	}
}

// callOnce makes the call of kind op and returns its error.
func (r *rig) callOnce(t *testing.T, op string) error {
	t.Helper()
	ref := provider.Ref{Zone: zoneB, Name: "proxy-a"}
	var err error
	switch op {
	case "insert":
		_, err = r.Insert(t.Context(), testInsert())
	case "get":
		_, err = r.Get(t.Context(), ref)
	case "delete":
		_, err = r.Delete(t.Context(), ref, testInsert().RequestID)
	case "operation":
		_, err = r.Operation(t.Context(), zoneB, "operation-1")
	case "list":
		_, err = r.List(t.Context())
	}
	return err
}

// Row D3: every variant of a stockout is classified as one, and the message contains
// the zones with capacity.
func TestD3StockoutVariantsAndZonesAvailable(t *testing.T) {
	for _, code := range []string{
		"ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "ZONE_RESOURCE_POOL_EXHAUSTED_IN_A_NEW_WAY", "STOCKOUT",
		"IP_SPACE_EXHAUSTED", "IP_SPACE_EXHAUSTED_WITH_DETAILS", "INSUFFICIENT_CAPACITY",
	} {
		op := &computepb.Operation{Status: computepb.Operation_DONE.Enum(), Error: &computepb.Error{Errors: []*computepb.Errors{{
			Code: &code, ErrorDetails: []*computepb.ErrorDetails{{ErrorInfo: &computepb.ErrorInfo{
				Metadatas: map[string]string{"zonesAvailable": "europe-west1-d"},
			}}},
		}}}}
		err := fromOperation("insert", "target", op, "")
		require.ErrorIs(t, err, provider.ErrStockout, code)
		assert.ErrorContains(t, err, "europe-west1-d")
	}
}

// Sections 3.1 (b) and 3.2, rows D1, D3, D4 and D5: the failures that matter come with
// the operation, with or without an HTTP status.
func TestD1ErrorsOfOperations(t *testing.T) {
	type fixture struct {
		Name, Kind, Class, Text string
		Operation               json.RawMessage
	}
	for _, f := range fixtures[fixture](t, "testdata/operations.json") {
		t.Run(f.Name, func(t *testing.T) {
			var op computepb.Operation
			require.NoError(t, protojson.Unmarshal(f.Operation, &op))
			got := operation(f.Kind, "zones/z/instances/n", zoneB, &op, "")
			assert.True(t, got.Done)
			if f.Class == "" {
				assert.NoError(t, got.Err)
				return
			}
			require.Error(t, got.Err)
			assert.Equal(t, f.Class, provider.Class(got.Err).Error())
			assert.ErrorContains(t, got.Err, f.Text)
			assert.False(t, provider.MayHaveTakenEffect(got.Err), "an operation's end is known")
		})
	}
}

func TestRunningOperationHasNoErrorYet(t *testing.T) {
	op := &computepb.Operation{Status: computepb.Operation_RUNNING.Enum()}
	assert.Equal(t, provider.Operation{Zone: zoneB}, operation("insert", "x", zoneB, op, ""))
}

func TestLostResponsesAreTransientAndUnsure(t *testing.T) {
	for _, op := range []string{"insert", "get", "delete", "operation", "list"} {
		r := newRig(t, Config{}, gcestandin.Options{})
		r.gce.AddFault(gcestandin.Fault{DropAnswer: true})
		err := r.callOnce(t, op)
		assert.ErrorIs(t, err, provider.ErrTransient, op)
		assert.True(t, provider.MayHaveTakenEffect(err), op)
	}
}

// Row E4, with the message that Compute really uses.
func TestE4ErrorsOfInsertDoNotContainUserData(t *testing.T) {
	const canary = "CANARY-0123456789abcdef"
	req := testInsert()
	req.Want.UserData = "password: " + canary
	for name, f := range map[string]gcestandin.Fault{
		"call":      {Status: 400, Reason: "invalid", Message: "Invalid value for field 'resource.metadata.items[1].value': '" + req.Want.UserData + "'."},
		"operation": {OperationError: &gcestandin.OperationError{Code: "INVALID_FIELD_VALUE", Message: "Invalid value for field 'resource.metadata.items[1].value': " + req.Want.UserData}},
	} {
		r := newRig(t, Config{}, gcestandin.Options{})
		r.gce.AddFault(f)
		op, err := r.Insert(t.Context(), req)
		if err == nil {
			err = op.Err
		}
		require.ErrorIs(t, err, provider.ErrPermanent, name)
		for e := err; e != nil; e = errors.Unwrap(e) {
			assert.NotContains(t, e.Error(), canary, name)
		}
		var g *googleapi.Error
		assert.NotErrorAs(t, err, &g, "the cause holds it too")
	}
}

func TestUnclassifiedHTTPFailuresKeepTheirCause(t *testing.T) {
	err := fromHTTP("get", "x", io.ErrUnexpectedEOF, "")
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.ErrorIs(t, err, provider.ErrTransient)
}

const canaryData = "#cloud-config\nwrite_files:\n- content: |\n    user:CANARY-0123456789abcdef\n"

// Row E4: Compute's messages echo the refused value, which for user data may be a
// password.
func TestE4RedactHidesUserData(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"whole value":    {"Invalid value for field 'x': '" + canaryData + "'. Too large.", "CANARY"},
		"part of a line": {"near CANARY-0123456789a", "CANARY"},
		"escaped":        {strings.ReplaceAll(canaryData, "\n", `\n`), "CANARY"},
	}
	for name, tt := range tests {
		clean := redact(tt.text, canaryData)
		assert.NotContains(t, clean, tt.want, name)
		assert.Contains(t, clean, "[redacted]", name)
	}
	assert.Equal(t, "Invalid value for field 'x': '[redacted]'. Too large.",
		redact("Invalid value for field 'x': 'CANARY-0123456789abcdef'. Too large.", "CANARY-0123456789abcdef"))
}

func TestRedactKeepsOtherText(t *testing.T) {
	text := "The resource 'projects/p/zones/z/instances/n' already exists"
	assert.Equal(t, text, redact(text, canaryData))
	assert.Equal(t, text, redact(text, ""))
	err := errors.New(text)
	assert.Same(t, err, redacted(err, canaryData), "the cause stays reachable")
}

func FuzzRedact(f *testing.F) {
	f.Add("before ", "line one of the secret\nshort\n", " after")
	f.Add("", "0123456789ab", "")
	f.Fuzz(func(t *testing.T, before, secret, after string) {
		for line := range strings.Lines(secret) {
			line = strings.TrimSpace(line)
			if len(line) < window || strings.Contains("[redacted]", line) {
				continue
			}
			require.NotContains(t, redact(before+line+after, secret), line)
		}
	})
}
