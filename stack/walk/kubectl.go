package walk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// kubectl runs kubectl in the namespace of the walk and returns its output. stdin may be nil. Its cache lives beside the
// kubeconfig: the user's own cache must not learn of API servers that are gone.
func (w *walker) kubectl(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	config := w.stack.Kubeconfig
	all := append([]string{"--kubeconfig", config, "--cache-dir", filepath.Join(filepath.Dir(config), "kubectl-cache"), "-n", w.stack.Namespace}, args...)
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(ctx, w.stack.Kubectl, all...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), errors.Join(err, ctx.Err()), bytes.TrimSpace(problems.Bytes()))
	}
	return out.String(), nil
}

func (w *walker) apply(ctx context.Context, p *v1alpha1.Proxy) error {
	p.APIVersion, p.Kind = v1alpha1.GroupVersion().String(), "Proxy"
	manifest, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode proxy %s: %w", p.Name, err)
	}
	_, err = w.kubectl(ctx, bytes.NewReader(manifest), "apply", "--server-side", "-f", "-")
	return err
}

// print runs a kubectl get and prints it with its command.
func (w *walker) print(ctx context.Context, args ...string) error {
	out, err := w.kubectl(ctx, nil, append([]string{"get"}, args...)...)
	if err != nil {
		return err
	}
	w.printCommand("kubectl get "+strings.Join(args, " "), out)
	return nil
}

func (w *walker) printCommand(command, out string) {
	w.say("$ %s", command)
	for line := range strings.Lines(out) {
		w.printf("   %s", line)
	}
}

// events waits until the proxy has Events with these reasons, and prints all of its Events.
func (w *walker) events(ctx context.Context, proxy string, reasons ...string) error {
	p, err := w.proxy(ctx, proxy)
	if err != nil {
		return err
	}
	var table string
	_, err = await(ctx, patience, func(ctx context.Context) error {
		var err error
		table, err = w.kubectl(ctx, nil, "get", "events", "--field-selector", "involvedObject.uid="+string(p.UID))
		for _, reason := range reasons {
			if err == nil && !strings.Contains(table, " "+reason+" ") {
				err = fmt.Errorf("want an Event with the reason %s, have:\n%s", reason, table)
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("events of %s: %w", proxy, err)
	}
	w.printCommand("kubectl get events --field-selector involvedObject.name="+proxy, table)
	return nil
}
