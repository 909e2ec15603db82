package webhooks

import (
	_ "gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery" // want "webhooks imports discovery: packages of webhooks may import api, internal, metacontroller alone"
	_ "gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/x"
	_ "gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/squid"
	_ "sigs.k8s.io/controller-runtime" // want "imports controller-runtime"
)
