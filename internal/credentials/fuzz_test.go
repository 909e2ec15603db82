package credentials

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// FuzzSecret: whatever a Secret holds is refused, or comes out again of the proxy
// URL that crawlers are given.
func FuzzSecret(f *testing.F) {
	f.Add("true", []byte("u"), []byte("p"))
	f.Add("true", []byte("a:b@c/d?e#f%zz"), []byte("\x00\xff\r\n ü"))
	f.Add("false", []byte("u"), []byte("p"))
	f.Add("true", []byte(""), []byte("p"))
	f.Fuzz(func(t *testing.T, label string, username, password []byte) {
		c, err := fromSecret(secret(map[string]string{v1alpha1.LabelCredentials: label}, map[string][]byte{"username": username, "password": password}))
		if err != nil {
			require.ErrorIs(t, err, ErrRefused)
			if len(password) > 8 {
				require.NotContains(t, err.Error(), string(password))
			}
			return
		}
		require.Equal(t, "true", label)
		again, err := url.Parse((&url.URL{Scheme: "http", User: c.Userinfo(), Host: "10.0.0.7:3128"}).String())
		require.NoError(t, err)
		require.Equal(t, "10.0.0.7:3128", again.Host)
		got, _ := again.User.Password()
		require.Equal(t, string(username), again.User.Username())
		require.Equal(t, string(password), got)
	})
}
