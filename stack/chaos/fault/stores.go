package fault

import (
	"context"
	"fmt"
	"syscall"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/stores"
)

// redis kills or freezes Redis.
type redis struct {
	lab     *Lab
	variant string
}

func (r *redis) Window() history.Fault {
	return history.Fault{Family: history.RedisAway, Subject: "redis", Detail: r.variant}
}

func (r *redis) Inject(context.Context) (Heal, error) {
	switch r.variant {
	case plan.RedisKill:
		return r.lab.Redis.Start, r.lab.Redis.Kill()
	case plan.RedisFreeze:
		return func(context.Context) error { return goOn(r.lab.Redis.Signal(syscall.SIGCONT)) }, r.lab.Redis.Signal(syscall.SIGSTOP)
	}
	return nil, fmt.Errorf("redis cannot be made %q", r.variant)
}

// disk fills the disk of the lease journal.
type disk struct{ lab *Lab }

func (d *disk) Window() history.Fault {
	f := history.Fault{Family: history.DiskFull, Subject: plan.DiscoveryFile, Detail: "ENOSPC"}
	if d.lab.Disk == nil {
		f.Detail = "EFBIG"
	}
	return f
}

func (d *disk) Inject(context.Context) (Heal, error) {
	if d.lab.Disk != nil {
		return func(context.Context) error { return d.lab.Disk.Free() }, d.lab.Disk.Fill()
	}
	pid, err := d.lab.Programs.PID(plan.DiscoveryFile)
	if err != nil {
		return nil, err
	}
	return func(context.Context) error {
		now, err := d.lab.Programs.PID(plan.DiscoveryFile)
		if err != nil || now != pid {
			return err // another process, without the limit
		}
		return stores.LimitFiles(pid, 0)
	}, stores.LimitFiles(pid, 1)
}
