package walk

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

func proxyAt(ip string, port int32) *v1alpha1.Proxy {
	return &v1alpha1.Proxy{Status: v1alpha1.ProxyStatus{IP: ip, Port: port}}
}

func TestCheckGrants(t *testing.T) {
	edited := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	at := func(after time.Duration, host string, port int) granted {
		return granted{asked: edited.Add(after), host: host, port: port}
	}
	failed := at(5*time.Second, "127.1.1.3", 3129)
	failed.err = errors.New("does not answer")
	tests := map[string]struct {
		got  grants
		want string
	}{
		"old, a break, new": {got: grants{refused: 9, list: []granted{
			at(-time.Second, "127.1.1.2", 3128), at(10*time.Millisecond, "127.1.1.2", 3128), at(5*time.Second, "127.1.1.3", 3129)}}},
		"old address, new port": {
			got:  grants{refused: 9, list: []granted{at(5*time.Second, "127.1.1.2", 3129)}},
			want: "neither its old nor its new address"},
		"new address, old port": {
			got:  grants{refused: 9, list: []granted{at(5*time.Second, "127.1.1.3", 3128)}},
			want: "neither its old nor its new address"},
		"old after the edit has propagated": {
			got:  grants{refused: 9, list: []granted{at(5100*time.Millisecond, "127.1.1.2", 3128)}},
			want: "old address 5.1s after the edit"},
		"old after new": {
			got:  grants{refused: 9, list: []granted{at(500*time.Millisecond, "127.1.1.3", 3129), at(600*time.Millisecond, "127.1.1.2", 3128)}},
			want: "after it had been granted at its new one"},
		"an address that does not answer": {
			got: grants{refused: 9, list: []granted{failed}}, want: "does not answer"},
		"no break": {
			got:  grants{list: []granted{at(0, "127.1.1.2", 3128), at(1, "127.1.1.3", 3129)}},
			want: "without a break"},
		"the API failed": {
			got: grants{refused: 1, err: errors.New("503")}, want: "503"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := checkGrants(tt.got, proxyAt("127.1.1.2", 3128), proxyAt("127.1.1.3", 3129), edited)
			if tt.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, tt.want)
		})
	}
}
