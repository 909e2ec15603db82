package walk

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// tableMediaType asks the API server for the rows and columns that kubectl get
// prints.
const tableMediaType = "application/json;as=Table;v=v1;g=meta.k8s.io"

// tables fetches the API server's own tables.
type tables struct {
	client rest.Interface
}

// of is what `kubectl get` shows of a resource of ours, or with wide `kubectl get -o
// wide`.
func (t *tables) of(ctx context.Context, resource, namespace string, wide bool) (string, error) {
	return t.get(ctx, "/apis/"+v1alpha1.GroupVersion().String(), resource, namespace, "", wide)
}

// get is what it shows of any, of those that the field selector selects.
func (t *tables) get(ctx context.Context, group, resource, namespace, fieldSelector string, wide bool) (string, error) {
	path := fmt.Sprintf("%s/namespaces/%s/%s", group, namespace, resource)
	body, err := t.client.Get().AbsPath(path).Param("fieldSelector", fieldSelector).SetHeader("Accept", tableMediaType).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("get the table of %s: %w", resource, err)
	}
	var table metav1.Table
	if err := json.Unmarshal(body, &table); err != nil {
		return "", fmt.Errorf("read the table of %s: %w", resource, err)
	}
	return render(&table, wide), nil
}

// render lays a table out as kubectl does: priority 0 columns, all when wide.
func render(table *metav1.Table, wide bool) string {
	var out strings.Builder
	tw := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	shown := func(i int) bool { return wide || table.ColumnDefinitions[i].Priority == 0 }
	var header []string
	for i, c := range table.ColumnDefinitions {
		if shown(i) {
			header = append(header, strings.ToUpper(c.Name))
		}
	}
	writeRow(tw, header)
	for _, row := range table.Rows {
		var cells []string
		for i, cell := range row.Cells {
			if i < len(table.ColumnDefinitions) && shown(i) {
				cells = append(cells, text(cell))
			}
		}
		writeRow(tw, cells)
	}
	_ = tw.Flush() // a strings.Builder does not fail
	return out.String()
}

func writeRow(w io.Writer, cells []string) { fmt.Fprintln(w, strings.Join(cells, "\t")) }

func text(cell any) string {
	if cell == nil {
		return ""
	}
	return fmt.Sprint(cell)
}

// printTable shows the Proxies under the command that would show them.
func (w *walker) printTable(ctx context.Context, wide bool) error {
	command := "kubectl get px"
	if wide {
		command += " -o wide"
	}
	return w.printOf(ctx, command, v1alpha1.ProxyResource().Resource, wide)
}

// printProbes shows the ProxyProbes.
func (w *walker) printProbes(ctx context.Context) error {
	return w.printOf(ctx, "kubectl get pxp", v1alpha1.ProxyProbeResource().Resource, false)
}

func (w *walker) printOf(ctx context.Context, command, resource string, wide bool) error {
	table, err := w.tables.of(ctx, resource, w.stack.Namespace, wide)
	if err != nil {
		return err
	}
	w.printRows(command, table)
	return nil
}

func (w *walker) printRows(command, table string) {
	w.say("$ %s", command)
	for line := range strings.Lines(table) {
		w.printf("   %s", line)
	}
}
