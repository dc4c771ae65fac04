package notify

import (
	"fmt"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/mask"
	"github.com/carillon-scheduler/carillon/job"
)

// Vault opens secrets.
type Vault interface {
	// Open is a secret's value, and the hosts that it may be sent to; none: any.
	Open(namespace, name string) (value string, hosts []string, err error)
}

// fill puts the values of secrets into the URL of a job's webhook, when it is about to be called. What the receiver
// says is masked: some repeat the path that they were called by.
func (o *Outbox) fill(url string, d *delivery) (string, *mask.Masker, error) {
	names := d.to.WebhookSecrets()
	if len(names) == 0 {
		return url, nil, nil
	}
	targets, _ := d.to.Targets()
	values := map[string]string{}
	var all []string
	for _, name := range names {
		if o.Vault == nil {
			return "", nil, fmt.Errorf("the secret %q cannot be read: this cluster has no secrets", name)
		}
		value, hosts, err := o.Vault.Open(d.msg.Namespace, name)
		if err != nil {
			return "", nil, err
		}
		for _, t := range targets {
			if !job.SecretMayGoTo(hosts, t) {
				return "", nil, fmt.Errorf("the secret %q is only for %s, not for %s", name,
					strings.Join(hosts, ", "), t)
			}
		}
		values[name], all = value, append(all, value)
	}
	m := mask.New(all...)
	full, err := job.ExpandURL(url, func(name string) string { return values[name] })
	return full, m, err
}
