package webhooks

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// answer puts a decision into the form of a hook answer. VMs are no children.
func answer(o *Observation, d *Decision) (*metacontroller.Response, error) {
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&d.Status)
	if err != nil {
		return nil, fmt.Errorf("convert status: %w", err)
	}
	children, err := listChildren(o, d)
	if err != nil {
		return nil, err
	}
	return &metacontroller.Response{
		Status:             status,
		Children:           children,
		ResyncAfterSeconds: d.ResyncAfter.Seconds(),
		Finalized:          d.Finalized,
	}, nil
}

func listChildren(o *Observation, d *Decision) ([]*unstructured.Unstructured, error) {
	children := []*unstructured.Unstructured{}
	switch {
	case d.Instance == MakeInstance && !o.Provider.outside():
		children = append(children, podChild(o.Proxy, o.Provider, d.SpecHash))
	case d.Instance == KeepInstance && o.podAlive():
		children = append(children, keptPod(o.Proxy))
	}
	if d.Probe != nil {
		probe, err := probeChild(o.Proxy, d.Probe)
		if err != nil {
			return nil, err
		}
		children = append(children, probe)
	}
	for _, s := range o.Strays {
		if d.KeepStrays && !s.Terminating {
			children = append(children, s.Object)
		}
	}
	return children, nil
}
