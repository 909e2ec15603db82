package realnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
)

// kubeletConfig is for a node without other users, on either version of
// cgroups, without iptables.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[2]s}
authorization: {mode: Webhook}
address: %[3]s
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
containerRuntimeEndpoint: unix://%[1]s/containerd.sock
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
localStorageCapacityIsolation: false
oomScoreAdj: 0
podLogsDir: %[1]s/podlogs
resolvConf: ""
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", imagefs.available: "0%%", nodefs.inodesFree: "0%%"}
imageGCHighThresholdPercent: 100
`

func (n *Node) startKubelet(ctx context.Context) error {
	config := filepath.Join(n.dir, "kubelet.yaml")
	content := fmt.Sprintf(kubeletConfig, n.dir, n.cfg.ControlPlane.Authority(), GatewayIP)
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		return err
	}
	return n.run(ctx, process.Command{
		Name: "kubelet", Path: n.cfg.Assets.Kubelet,
		Args: []string{
			"--config=" + config,
			"--kubeconfig=" + n.cfg.ControlPlane.Kubeconfig(),
			"--hostname-override=" + Name,
			"--node-ip=" + GatewayIP,
			"--root-dir=" + filepath.Join(n.dir, "kubelet"),
			"--cert-dir=" + filepath.Join(n.dir, "pki"),
		},
	}, n.ready)
}

// ready reports whether the node has registered with the API server.
func (n *Node) ready(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(n.cfg.ControlPlane.RESTConfig())
	if err != nil {
		return err
	}
	node, err := client.CoreV1().Nodes().Get(ctx, Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get node: %w", err)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("node %s is not Ready: %v", Name, node.Status.Conditions)
}

// startControllers starts what makes Pods and gives them their node.
func (n *Node) startControllers(ctx context.Context) error {
	kubeconfig := n.cfg.ControlPlane.Kubeconfig()
	common := []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--leader-elect=false", "--bind-address=127.0.0.1",
	}
	manager := append([]string{
		"--service-account-private-key-file=" + n.cfg.ControlPlane.ServiceAccountKey(),
		"--root-ca-file=" + n.cfg.ControlPlane.Authority(),
	}, common...)
	return errors.Join(
		n.run(ctx, process.Command{Name: "kube-controller-manager", Path: n.cfg.Assets.ControllerManager, Args: manager}, nil),
		n.run(ctx, process.Command{Name: "kube-scheduler", Path: n.cfg.Assets.Scheduler, Args: common}, nil))
}
