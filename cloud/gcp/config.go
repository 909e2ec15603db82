package gcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"time"

	compute "cloud.google.com/go/compute/apiv1"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"google.golang.org/api/option"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// Type is this provider's type in the provider config.
const Type = "gcp"

// Keys of the instance metadata that user data may go into.
const (
	// KeyUserData is read by cloud-init, where the image has it: Ubuntu and
	// Container-Optimized OS.
	KeyUserData = "user-data"
	// KeyStartupScript is read by Google's guest agent, which runs it as a
	// program at every boot. cloud-init does not read it.
	KeyStartupScript = "startup-script"
)

// Config is the gcp block of a provider.
type Config struct {
	// Project that VMs are made in and that pays for them. Required.
	Project string `json:"project"`
	// Network and Subnetwork of VMs whose placement names none. Default the
	// network called default.
	Network    string `json:"network"`
	Subnetwork string `json:"subnetwork"`
	// NetworkTags of every VM, for firewall rules. Default crawl-proxy.
	NetworkTags []string `json:"networkTags"`
	// ServiceAccount of VMs, an e-mail address, with the scopes to write logs
	// and metrics. Default none: a proxy needs no identity, and without one
	// nobody can take its tokens through the proxy.
	ServiceAccount string `json:"serviceAccount"`
	// UserDataKey is KeyUserData (the default) or KeyStartupScript.
	UserDataKey string `json:"userDataKey"`
	// MaxInstances of this installation in the project; 0 means no limit.
	MaxInstances int `json:"maxInstances"`
}

var (
	projectPattern = regexp.MustCompile(`^([a-z0-9.-]+:)?[a-z][-a-z0-9]{0,29}$`)
	tagPattern     = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
)

// complete fills in defaults and lists everything that is wrong.
func (c *Config) complete() error {
	if c.NetworkTags == nil {
		c.NetworkTags = []string{"crawl-proxy"}
	}
	if c.UserDataKey == "" {
		c.UserDataKey = KeyUserData
	}
	var errs []error
	if !projectPattern.MatchString(c.Project) {
		errs = append(errs, fmt.Errorf("gcp.project %q: want a project id, such as my-project-1", c.Project))
	}
	for _, tag := range c.NetworkTags {
		if !tagPattern.MatchString(tag) {
			errs = append(errs, fmt.Errorf("gcp.networkTags %q: want 1 to 63 lower-case letters, digits and -, beginning with a letter", tag))
		}
	}
	if c.UserDataKey != KeyUserData && c.UserDataKey != KeyStartupScript {
		errs = append(errs, fmt.Errorf("gcp.userDataKey %q: want %s or %s", c.UserDataKey, KeyUserData, KeyStartupScript))
	}
	if c.MaxInstances < 0 {
		errs = append(errs, errors.New("gcp.maxInstances must not be negative"))
	}
	return errors.Join(errs...)
}

// Options are what all gcp providers of a process share.
type Options struct {
	// Endpoint other than Google's; no credentials are sent to it.
	Endpoint string
	// Timeout of a single HTTP request. It must not be 0, since nothing else
	// ends an aggregatedList. Default 30 s.
	Timeout time.Duration
}

// Constructor makes gcp providers, which sign in with application-default
// credentials unless Options.Endpoint is set.
func Constructor(o Options) provider.Constructor {
	return func(ctx context.Context, e provider.Entry, d provider.Deps) (provider.Cloud, error) {
		var cfg Config
		if err := e.Decode(&cfg); err != nil {
			return nil, err
		}
		return New(ctx, cfg, d.Installation, o)
	}
}

// Cloud is one project.
type Cloud struct {
	cfg          Config
	installation string
	instances    *compute.InstancesClient
	operations   *compute.ZoneOperationsClient
	http         *http.Client
}

// New returns the project of cfg. The error lists every field that is wrong, or
// says that no credentials were found.
func New(ctx context.Context, cfg Config, installation string, o Options) (*Cloud, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	client, err := httpClient(ctx, o)
	if err != nil {
		return nil, err
	}
	// The client's own debug log, which an environment variable switches on,
	// would show request bodies and so user data.
	use := []option.ClientOption{option.WithHTTPClient(client), option.WithLogger(slog.New(slog.DiscardHandler))}
	if o.Endpoint != "" {
		use = append(use, option.WithEndpoint(o.Endpoint))
	}
	c := &Cloud{cfg: cfg, installation: installation, http: client}
	if c.instances, err = compute.NewInstancesRESTClient(ctx, use...); err != nil {
		return nil, fmt.Errorf("gcp: client for instances: %w", err)
	}
	if c.operations, err = compute.NewZoneOperationsRESTClient(ctx, use...); err != nil {
		return nil, fmt.Errorf("gcp: client for operations: %w", err)
	}
	*c.instances.CallOptions = compute.InstancesCallOptions{}
	*c.operations.CallOptions = compute.ZoneOperationsCallOptions{}
	return c, nil
}

func httpClient(ctx context.Context, o Options) (*http.Client, error) {
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = 32
	if o.Endpoint != "" {
		return &http.Client{Transport: base, Timeout: o.Timeout}, nil
	}
	// Tokens are fetched with a client of the same time-out.
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: base, Timeout: o.Timeout})
	tokens, err := google.DefaultTokenSource(ctx, "https://www.googleapis.com/auth/compute")
	if err != nil {
		return nil, fmt.Errorf("gcp: no application-default credentials, use Workload Identity in a cluster or `gcloud auth application-default login` on a laptop: %w", err)
	}
	return &http.Client{Transport: &oauth2.Transport{Source: tokens, Base: base}, Timeout: o.Timeout}, nil
}

// Close ends the connections of the clients.
func (c *Cloud) Close() error {
	c.http.CloseIdleConnections()
	return errors.Join(c.instances.Close(), c.operations.Close())
}

// Account is the project.
func (c *Cloud) Account() string { return Type + "/" + c.cfg.Project }

// MaxInstances is gcp.maxInstances.
func (c *Cloud) MaxInstances() int { return c.cfg.MaxInstances }
