package charttest

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "copy the rules and the dashboard into the chart")

// sets are the values that the chart is held to.
var sets = map[string]string{
	"default":  `{keys: {existingSecret: carillon-keys}}`,
	"insecure": `{replicas: 1, insecure: true, allowedHosts: [sched.example.com]}`,
	"full": `
replicas: 5
keys: {existingSecret: carillon-keys}
tls: {existingSecret: carillon-tls}
monitoring:
  existingSecret: carillon-monitoring
  serviceMonitor: {enabled: true, labels: {release: prometheus}}
  prometheusRule: {enabled: true, labels: {release: prometheus}}
  dashboard: {enabled: true, annotations: {folder: jobs}}
networkPolicy:
  enabled: true
  clients: [{namespaceSelector: {matchLabels: {team: web}}}]
  monitoring: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
worker: {enabled: true, replicas: 2, existingSecret: carillon-worker, extraArgs: [--slots=128, "--tags=region=eu"]}
`,
	"custom": `
fullnameOverride: sched
clusterDomain: k8s.example.com
image: {repository: registry.example.com/carillon, digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}
imagePullSecrets: [{name: registry}]
keys: {existingSecret: sched-keys}
persistence: {size: 50Gi, storageClass: local-nvme, accessModes: [ReadWriteOncePod], annotations: {a: b}}
extraArgs: [--executors=http, --log-format=json, "--egress-deny=10.99.0.0/16", "--smtp-addr=mail.example.com:587", --smtp-from=carillon@example.com]
extraEnv:
  - {name: CARILLON_SMTP_USER, value: carillon}
  - {name: CARILLON_SMTP_PASSWORD, valueFrom: {secretKeyRef: {name: mail, key: password}}}
extraVolumes: [{name: webhooks, secret: {secretName: webhooks}}]
extraVolumeMounts: [{name: webhooks, mountPath: /webhooks, readOnly: true}]
resources: {requests: {cpu: "1", memory: 2Gi}, limits: {memory: 4Gi}}
podLabels: {team: platform}
podAnnotations: {a: b}
priorityClassName: high
nodeSelector: {disk: nvme}
tolerations: [{key: dedicated, operator: Equal, value: sched, effect: NoSchedule}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a, b]}]}]}}}
spread: ScheduleAnyway
runAsUser: 2000
service: {type: LoadBalancer, port: 443, annotations: {a: b}}
serviceAccount: {name: sched, annotations: {a: b}}
monitoring: {job: carillon-eu}
worker:
  enabled: true
  existingSecret: w
  metrics: false
  image: {repository: registry.example.com/mailer, tag: "7"}
  extraArgs: [--executors=queue, --command=/send-mail]
  extraEnv: [{name: CARILLON_QUEUES, value: mail}]
  extraVolumes: [{name: tmp, emptyDir: {}}]
  extraVolumeMounts: [{name: tmp, mountPath: /tmp}]
  podLabels: {team: platform}
`,
	"off": `
insecure: true
service: {enabled: false}
podDisruptionBudget: {enabled: false}
serviceAccount: {create: false}
resources: {}
`,
}

var secrets = map[string]string{"mail/password": "secret"}

// names are what each set makes, besides nothing.
var names = map[string][]string{
	"default": {"PodDisruptionBudget carillon", "Service carillon", "Service carillon-nodes", "ServiceAccount carillon",
		"StatefulSet carillon"},
	"insecure": {"PodDisruptionBudget carillon", "Service carillon", "Service carillon-nodes", "ServiceAccount carillon",
		"StatefulSet carillon"},
	"full": {"ConfigMap carillon-dashboard", "Deployment carillon-worker", "NetworkPolicy carillon",
		"NetworkPolicy carillon-workers", "PodDisruptionBudget carillon", "PrometheusRule carillon", "Service carillon",
		"Service carillon-nodes", "Service carillon-workers", "ServiceAccount carillon", "ServiceMonitor carillon",
		"ServiceMonitor carillon-workers", "StatefulSet carillon"},
	"custom": {"Deployment sched-worker", "PodDisruptionBudget sched", "Service sched", "Service sched-nodes",
		"ServiceAccount sched", "StatefulSet sched"},
	"off": {"Service carillon-nodes", "StatefulSet carillon"},
}

// nodeName is that of the StatefulSet in a set.
func nodeName(set string) string {
	if set == "custom" {
		return "sched"
	}
	return "carillon"
}

// Every object can be read strictly as what it says it is, and they fit together.
func TestObjects(t *testing.T) {
	for set, values := range sets {
		t.Run(set, func(t *testing.T) {
			r := mustRender(t, "carillon", values)
			if got := slices.Sorted(maps.Keys(r.objects)); !slices.Equal(got, names[set]) {
				t.Errorf("it makes %q", got)
			}
			for key, o := range r.objects {
				if o.GetNamespace() != namespace || len(o.GetName()) > 63 || o.GetLabels()["app.kubernetes.io/instance"] != "carillon" {
					t.Errorf("%s: %q, %v", key, o.GetNamespace(), o.GetLabels())
				}
			}
			for _, p := range r.pods() {
				checkPod(t, r, p)
			}
			sts := get[*appsv1.StatefulSet](t, r, "StatefulSet "+nodeName(set))
			checkNodes(t, r, sts)
			for key, o := range r.objects {
				if s, ok := o.(*corev1.Service); ok {
					checkService(t, r, key, s)
				}
			}
			if !strings.Contains(r.notes, "kubectl exec "+nodeName(set)+"-0 -n jobs -- /carillon") {
				t.Errorf("notes: %s", r.notes)
			}
		})
	}
}

// within says whether labels have all of a selector.
func within(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return len(selector) > 0
}

func checkPod(t *testing.T, r *release, p pod) {
	t.Helper()
	s := p.Spec
	if !within(p.selector, p.Labels) || p.selector["app.kubernetes.io/version"] != "" {
		t.Errorf("%s: %v does not select %v, or not those of the next version", p.name, p.selector, p.Labels)
	}
	if s.AutomountServiceAccountToken == nil || *s.AutomountServiceAccountToken {
		t.Errorf("%s has a token of Kubernetes", p.name)
	}
	// A Service that is called carillon-listen would be a setting of the node.
	if s.EnableServiceLinks == nil || *s.EnableServiceLinks {
		t.Errorf("%s has the variables of Services", p.name)
	}
	if s.ServiceAccountName != "default" && r.objects["ServiceAccount "+s.ServiceAccountName] == nil {
		t.Errorf("%s: there is no ServiceAccount %s", p.name, s.ServiceAccountName)
	}
	sc := s.SecurityContext
	if sc == nil || !*sc.RunAsNonRoot || *sc.RunAsUser == 0 || *sc.FSGroup != *sc.RunAsUser ||
		*sc.FSGroupChangePolicy != corev1.FSGroupChangeOnRootMismatch ||
		sc.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: %+v", p.name, sc)
	}
	volumes := map[string]bool{"data": p.selector["app.kubernetes.io/component"] == "node"}
	for _, v := range s.Volumes {
		volumes[v.Name] = true
		if v.Secret != nil && v.Name != "webhooks" && (v.Secret.DefaultMode == nil || *v.Secret.DefaultMode != 0o440) {
			t.Errorf("%s: the files of %s can be read by others: %v", p.name, v.Name, v.Secret.DefaultMode)
		}
	}
	if len(s.Containers) != 1 {
		t.Fatalf("%s has %d containers", p.name, len(s.Containers))
	}
	c := s.Containers[0]
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("%s: there is no volume %s", p.name, m.Name)
		}
	}
	cc := c.SecurityContext
	if cc == nil || *cc.AllowPrivilegeEscalation || !*cc.ReadOnlyRootFilesystem ||
		!slices.Equal(cc.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("%s: %+v", p.name, cc)
	}
	if !regexp.MustCompile(`^[a-z0-9./-]+(:[a-z0-9.]+|@sha256:[0-9a-f]{64})$`).MatchString(c.Image) {
		t.Errorf("%s: image %q", p.name, c.Image)
	}
}

func checkNodes(t *testing.T, r *release, sts *appsv1.StatefulSet) {
	t.Helper()
	s := sts.Spec
	if s.PodManagementPolicy != appsv1.ParallelPodManagement || s.UpdateStrategy.Type != appsv1.RollingUpdateStatefulSetStrategyType ||
		*s.Template.Spec.TerminationGracePeriodSeconds < 45 {
		t.Errorf("%+v", s)
	}
	headless := get[*corev1.Service](t, r, "Service "+s.ServiceName)
	if headless.Spec.ClusterIP != corev1.ClusterIPNone || !headless.Spec.PublishNotReadyAddresses {
		t.Errorf("%+v", headless.Spec)
	}
	spread := s.Template.Spec.TopologySpreadConstraints
	if len(spread) != 1 || spread[0].TopologyKey != "kubernetes.io/hostname" || !within(spread[0].LabelSelector.MatchLabels, s.Template.Labels) {
		t.Errorf("%+v", spread)
	}
	if len(s.VolumeClaimTemplates) != 1 || s.VolumeClaimTemplates[0].Name != "data" ||
		s.VolumeClaimTemplates[0].Labels["helm.sh/chart"] != "" {
		t.Errorf("%+v", s.VolumeClaimTemplates)
	}
	if o, ok := r.objects["PodDisruptionBudget "+sts.Name].(*policyv1.PodDisruptionBudget); ok &&
		(o.Spec.MaxUnavailable.IntValue() != 1 || !within(o.Spec.Selector.MatchLabels, s.Template.Labels)) {
		t.Errorf("%+v", o.Spec)
	}
	c := s.Template.Spec.Containers[0]
	scheme := corev1.URISchemeHTTPS
	if slices.Contains(c.Args, "--insecure") {
		scheme = corev1.URISchemeHTTP
	}
	for path, probe := range map[string]*corev1.Probe{"/healthz": c.StartupProbe, "/healthz ": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		if g := probe.HTTPGet; g == nil || g.Path != strings.TrimSpace(path) || g.Scheme != scheme || g.Port.StrVal != c.Ports[0].Name ||
			probe.FailureThreshold < 3 {
			t.Errorf("%s: %+v", path, probe)
		}
	}
}

// checkService holds that a Service finds pods of one kind, on a port that they have.
func checkService(t *testing.T, r *release, key string, s *corev1.Service) {
	t.Helper()
	found := 0
	for _, p := range r.pods() {
		if within(s.Spec.Selector, p.Labels) {
			found++
			for _, port := range s.Spec.Ports {
				if !slices.ContainsFunc(p.Spec.Containers[0].Ports, func(c corev1.ContainerPort) bool {
					return c.Name == port.TargetPort.StrVal
				}) {
					t.Errorf("%s: %s has no port %s", key, p.name, port.TargetPort.StrVal)
				}
			}
		}
	}
	if found != 1 {
		t.Errorf("%s selects %d kinds of pods", key, found)
	}
}

// settings are what the binary makes of the arguments and the environment of a container.
func settings(t *testing.T, p pod) map[string]string {
	t.Helper()
	env := environment(t, p.Spec.Containers[0], p.name, secrets)
	args := command(t, p.Spec.Containers[0], env)
	out, err := carillon(t, env, append([]string{"config", "show", args[0], "--json"}, args[1:]...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v: %s", args, err, out)
	}
	var shown struct {
		Settings []struct{ Name, Value, From string }
	}
	if err := json.Unmarshal(out, &shown); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	all := map[string]string{}
	for _, s := range shown.Settings {
		all[s.Name] = strings.Trim(s.Value, "[]")
	}
	return all
}

// The binary takes what containers give it, and makes of it what the chart means.
func TestCommands(t *testing.T) {
	for set, values := range sets {
		t.Run(set, func(t *testing.T) {
			r := mustRender(t, "carillon", values)
			sts := get[*appsv1.StatefulSet](t, r, "StatefulSet "+nodeName(set))
			domain := sts.Spec.ServiceName + "." + namespace + ".svc.cluster.local"
			if set == "custom" {
				domain = "sched-nodes.jobs.svc.k8s.example.com"
			}
			var list []string
			for i := range *sts.Spec.Replicas {
				list = append(list, fmt.Sprintf("%s-%d.%s:7400", sts.Name, i, domain))
			}
			cluster := strings.Join(list, ",")
			for _, p := range r.pods() {
				got := settings(t, p)
				if p.Spec.Containers[0].Name == "worker" {
					if got["join"] != cluster || got["token-file"] != "/token/token" {
						t.Errorf("%s: %v", p.name, got)
					}
					if set == "custom" && (got["queues"] != "mail" || got["metrics-listen"] != "") {
						t.Errorf("%s: %v", p.name, got)
					}
					continue
				}
				insecure := set == "insecure" || set == "off"
				keys := "/keys"
				if insecure {
					keys = ""
				}
				if got["node-id"] != sts.Name+"-0" || got["advertise"] != list[0] || got["cluster"] != cluster ||
					got["listen"] != "0.0.0.0:7400" || got["data-dir"] != "/data/carillon" || got["keys-from"] != keys ||
					got["insecure"] != fmt.Sprint(insecure) {
					t.Errorf("%s: %v", p.name, got)
				}
				if set == "custom" && (got["smtp-user"] != "carillon" || got["log-format"] != "json") {
					t.Errorf("%s: %v", p.name, got)
				}
				if hosts := "carillon,carillon.jobs,carillon.jobs.svc,carillon.jobs.svc.cluster.local"; set == "off" && got["allowed-hosts"] != hosts ||
					set == "insecure" && got["allowed-hosts"] != hosts+",sched.example.com" {
					t.Errorf("%s: %v", p.name, got["allowed-hosts"])
				}
				starts(t, p)
			}
		})
	}
}

// starts holds that a node with the arguments of a container gets as far as its data directory, which is the first
// thing that is not there: every flag has been looked at by then.
func starts(t *testing.T, p pod) {
	t.Helper()
	env := environment(t, p.Spec.Containers[0], p.name, secrets)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(command(t, p.Spec.Containers[0], env), "--data-dir="+file+"/carillon")
	out, err := carillon(t, env, args...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), file) || !strings.Contains(string(out), "not a directory") {
		t.Errorf("%q: %v: %s", args, err, out)
	}
}

// What cannot be right is refused, in words that name the value and say what to do.
func TestValuesRefused(t *testing.T) {
	for values, want := range map[string]string{
		`{}`: "carillon cluster init --out keys",
		`{insecure: true, keys: {existingSecret: k}}`:                                "exclude each other",
		`{insecure: true, tls: {existingSecret: k}}`:                                 "exclude each other",
		`{keys: {existingSecret: k}, worker: {enabled: true}}`:                       "token create workers --role worker",
		`{keys: {existingSecret: k}, monitoring: {serviceMonitor: {enabled: true}}}`: "token create prometheus --role viewer",
		`{insecure: true, extraArgs: ["--cluster=a:1"]}`:                             "--cluster=a:1 is set by the chart",
		`{insecure: true, extraArgs: [--bootstrap]}`:                                 "--bootstrap is set by the chart",
		`{insecure: true, worker: {enabled: true, extraArgs: ["--join=a:1"]}}`:       "--join=a:1 is set by the chart",
		`{insecure: true, replicas: three}`:                                          "/replicas",
		`{insecure: true, replicas: 0}`:                                              "/replicas",
		`{insecure: true, replica: 3}`:                                               "'replica'",
		`{insecure: "yes"}`:                                                          "/insecure",
		`{insecure: true, spread: Sometimes}`:                                        "/spread",
		`{insecure: true, persistence: {size: ten}}`:                                 "/persistence/size",
		`{insecure: true, persistence: {accessModes: [ReadWriteMany]}}`:              "/persistence/accessModes",
		`{insecure: true, terminationGracePeriodSeconds: 10}`:                        "/terminationGracePeriodSeconds",
		`{insecure: true, runAsUser: 0}`:                                             "/runAsUser",
		`{insecure: true, extraArgs: "--pprof"}`:                                     "/extraArgs",
		`{insecure: true, extraArgs: [pprof]}`:                                       "/extraArgs/0",
		`{insecure: true, fullnameOverride: Sched}`:                                  "/fullnameOverride",
		`{insecure: true, monitoring: {job: sched}}`:                                 "/monitoring/job",
		`{insecure: true, monitoring: {job: carillon-jobs}}`:                         "monitoring.job: carillon-jobs ends",
		`{insecure: true, image: {digest: latest}}`:                                  "/image/digest",
		`{insecure: true, service: {port: 70000}}`:                                   "/service/port",
	} {
		_, err := render(t, "carillon", values)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", values, err)
		}
	}
}

// A long name of the release leaves room for what is put behind it.
func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"carillon": "carillon", "my-carillon": "my-carillon", "sched": "sched-carillon",
		strings.Repeat("a", 39) + "-bcdefghijklm": strings.Repeat("a", 39),
	} {
		r := mustRender(t, name, `{keys: {existingSecret: k}, worker: {enabled: true, existingSecret: w}}`)
		sts := get[*appsv1.StatefulSet](t, r, "StatefulSet "+want)
		if len(sts.Name)+len("-10") > 63-len("-0123456789") {
			t.Errorf("the pods of %s", sts.Name)
		}
	}
}

// leaves are the paths of the values that are no tables, and of those that may hold anything.
func leaves(prefix string, values map[string]any, open func(path string) bool) (out []string) {
	for k, v := range values {
		path := prefix + "/" + k
		if m, ok := v.(map[string]any); ok && !open(path) {
			out = append(out, leaves(path, m, open)...)
			continue
		}
		out = append(out, path)
	}
	return out
}

// The schema knows the values that there are, and each has a line that says what it is.
func TestValuesHaveSchemaAndComment(t *testing.T) {
	read := func(name string, into any) string {
		data, err := os.ReadFile(filepath.Join(chartDir, name))
		if err == nil {
			err = yaml.UnmarshalStrict(data, into)
		}
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	type node struct {
		Type       any
		Properties map[string]json.RawMessage
	}
	var values map[string]any
	var schema json.RawMessage
	text := read("values.yaml", &values)
	read("values.schema.json", &schema)
	known := map[string]bool{} // whether it may hold anything
	var walk func(prefix string, raw json.RawMessage)
	walk = func(prefix string, raw json.RawMessage) {
		var n node
		if err := json.Unmarshal(raw, &n); err != nil {
			t.Fatal(err)
		}
		if known[prefix] = len(n.Properties) == 0; n.Type == "object" && len(n.Properties) > 0 &&
			!strings.Contains(string(raw), `"additionalProperties": false`) && !strings.Contains(string(raw), `"additionalProperties":false`) {
			t.Errorf("%s: a typing error in a name would go unnoticed", prefix)
		}
		for k, v := range n.Properties {
			walk(prefix+"/"+k, v)
		}
	}
	walk("", schema)
	delete(known, "/global") // Helm's own
	got := leaves("", values, func(path string) bool { return known[path] })
	var want []string
	for path, leaf := range known {
		if leaf {
			want = append(want, path)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("values: %q\nschema: %q", got, want)
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || strings.HasPrefix(key, "#") || key == "requests" || strings.TrimSpace(value) == "" && key != "resources" {
			continue
		}
		if i == 0 || !strings.HasPrefix(strings.TrimSpace(lines[i-1]), "# ") {
			t.Errorf("values.yaml:%d: %s is not explained", i+1, key)
		}
	}
}

// The chart has the alerts and the dashboard of the repository, which tests of their own hold to what nodes say.
func TestCopies(t *testing.T) {
	for from, to := range map[string]string{"../prometheus/rules.yaml": "files/rules.yaml", "../grafana/carillon.json": "files/carillon.json"} {
		want, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(chartDir, to)
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
			t.Errorf("%s is not %s: run `go test ./... -run Copies -update` in deploy/charttest (%v)", path, from, err)
		}
	}
	r := mustRender(t, "carillon", sets["full"])
	data, err := os.ReadFile("../prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want ruleFile
	if err := yaml.UnmarshalStrict(data, &want); err != nil {
		t.Fatal(err)
	}
	if got := get[*prometheusRule](t, r, "PrometheusRule carillon").Spec; len(got.Groups) < 3 || !reflect.DeepEqual(got, want) {
		t.Errorf("%d groups of rules, which are not those of the file", len(got.Groups))
	}
	data, err = os.ReadFile("../grafana/carillon.json")
	if err != nil {
		t.Fatal(err)
	}
	dashboard := get[*corev1.ConfigMap](t, r, "ConfigMap carillon-dashboard")
	if got := dashboard.Data["carillon.json"]; strings.TrimSpace(got) != strings.TrimSpace(string(data)) || dashboard.Labels["grafana_dashboard"] != "1" {
		t.Errorf("the dashboard has %d bytes, and the file %d", len(got), len(data))
	}
}

// Nodes and workers are scraped under the names that rules and dashboard go by, and nodes by the names in their certificates.
func TestMonitors(t *testing.T) {
	for job, values := range map[string]string{
		"carillon":       sets["full"],
		"carillon-eu":    sets["full"] + "\nfullnameOverride: carillon-eu",
		"carillon-sched": sets["full"] + "\nfullnameOverride: sched",
	} {
		r := mustRender(t, "carillon", values)
		name := job
		if job == "carillon-sched" {
			name = "sched"
		}
		seen := map[string]string{}
		for _, key := range []string{"ServiceMonitor " + name, "ServiceMonitor " + name + "-workers"} {
			m := get[*serviceMonitor](t, r, key)
			if m.Labels["release"] != "prometheus" || !slices.Equal(m.Spec.NamespaceSelector.MatchNames, []string{namespace}) {
				t.Errorf("%s: %+v", key, m)
			}
			selected := 0
			for other, o := range r.objects {
				s, ok := o.(*corev1.Service)
				if !ok || !within(m.Spec.Selector.MatchLabels, s.Labels) {
					continue
				}
				if selected++; s.Spec.Ports[0].Name != m.Spec.Endpoints[0].Port {
					t.Errorf("%s scrapes %s", key, other)
				}
			}
			if selected != 1 {
				t.Errorf("%s selects %d Services: a pod would be scraped so often", key, selected)
			}
			for _, e := range m.Spec.Endpoints {
				last := e.Relabelings[len(e.Relabelings)-1]
				if seen[last.Replacement] = e.Path; last.TargetLabel != "job" {
					t.Errorf("%s: %+v", key, e)
				}
				if strings.HasSuffix(key, "-workers") {
					continue
				}
				if !e.HonorLabels {
					t.Errorf("%s: the namespace of a queue would be called exported_namespace", e.Path)
				}
				if of := e.Params["namespace"]; (e.Path == "/metrics/jobs") != slices.Equal(of, []string{"*"}) {
					t.Errorf("%s: %s of the namespaces %q", key, e.Path, of) // the usual one is "default" alone
				}
				if first := e.Relabelings[0]; first.TargetLabel != "__address__" || e.Scheme != "https" ||
					first.Replacement != "$1."+name+"-nodes.jobs.svc.cluster.local:7400" ||
					e.Authorization.Credentials.Name != "carillon-monitoring" || e.TLSConfig.CA.Secret.Key != "ca.pem" {
					t.Errorf("%s: %+v", key, e)
				}
			}
		}
		if want := (map[string]string{job: "/metrics", job + "-jobs": "/metrics/jobs", job + "-workers": "/metrics"}); !maps.Equal(seen, want) {
			t.Errorf("%v", seen)
		}
	}
}

// Who may reach the nodes are nodes, workers and those that the values name; who may reach workers is monitoring.
func TestNetworkPolicy(t *testing.T) {
	r := mustRender(t, "carillon", sets["full"])
	for _, tc := range []struct {
		name  string
		peers int
		port  string
	}{{"carillon", 3, "api"}, {"carillon-workers", 1, "metrics"}} {
		p := get[*networkingv1.NetworkPolicy](t, r, "NetworkPolicy "+tc.name).Spec
		if len(p.Ingress) != 1 || len(p.Ingress[0].From) != tc.peers || p.Ingress[0].Ports[0].Port.StrVal != tc.port ||
			!slices.Equal(p.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) {
			t.Errorf("%s: %+v", tc.name, p)
		}
		// A peer without a selector would be everybody.
		for _, from := range p.Ingress[0].From {
			if from.PodSelector == nil && from.NamespaceSelector == nil && from.IPBlock == nil {
				t.Errorf("%s: %+v", tc.name, from)
			}
		}
	}
	r = mustRender(t, "carillon", `{insecure: true, networkPolicy: {enabled: true}, worker: {enabled: true}}`)
	if p := get[*networkingv1.NetworkPolicy](t, r, "NetworkPolicy carillon-workers").Spec; len(p.Ingress) != 0 {
		t.Errorf("nobody was to reach the workers: %+v", p)
	}
}
