package fault

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
)

// instance ends an instance behind everybody's back.
type instance struct {
	lab           *Lab
	name, variant string
}

func (i *instance) Window() history.Fault {
	return i.lab.proxyWindow(i.name, history.Terminated, i.variant)
}

func (i *instance) Inject(ctx context.Context) (Heal, error) {
	p := i.lab.Fleet.Known(i.name)
	if !runs(p) {
		return nil, fmt.Errorf("proxy %s has no instance now", i.name)
	}
	// It serves for a moment longer, which nobody can rely on.
	i.lab.Fleet.Tell(i.name, address(p), history.Dead)
	if err := i.end(ctx, p); err != nil {
		i.lab.Fleet.Tell(i.name, address(p), history.Alive)
		return nil, err
	}
	return nothing, nil
}

func (i *instance) end(ctx context.Context, p *v1alpha1.Proxy) error {
	if i.variant == plan.InstanceDelete {
		namespace, pod, ok := strings.Cut(p.Status.ProviderID, "/")
		if !ok {
			return fmt.Errorf("proxy %s: %q names no Pod", i.name, p.Status.ProviderID)
		}
		ctx, cancel := context.WithTimeout(ctx, controlTimeout)
		defer cancel()
		return i.lab.Kube.CoreV1().Pods(namespace).Delete(ctx, pod, metav1.DeleteOptions{})
	}
	zone, vm, ok := vmOf(p)
	if !ok {
		return fmt.Errorf("proxy %s: %q names no VM", i.name, p.Status.ProviderID)
	}
	return i.lab.control(ctx, http.MethodPost, "/control/vms/"+zone+"/"+vm+"/"+i.variant, nil)
}

// vmOf takes zones/ZONE/instances/NAME apart.
func vmOf(p *v1alpha1.Proxy) (zone, name string, ok bool) {
	parts := strings.Split(p.Status.ProviderID, "/")
	if len(parts) != 4 || parts[0] != "zones" || parts[2] != "instances" {
		return "", "", false
	}
	return parts[1], parts[3], true
}

// processes are the pids of the instance's processes: those that work in its
// folder.
func (l *Lab) processes(p *v1alpha1.Proxy) ([]int, error) {
	folder := filepath.Join(l.PodRoot, "pod-"+p.Status.InstanceID)
	if _, name, ok := vmOf(p); ok {
		folder = filepath.Join(l.VMRoot, name+"-"+p.Status.InstanceID)
	}
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, link := range links {
		at, err := os.Readlink(link)
		if err != nil || (at != folder && !strings.HasPrefix(at, folder+"/")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("no process works in %s", folder)
	}
	return pids, nil
}
