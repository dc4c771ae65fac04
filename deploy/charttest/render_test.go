package charttest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	chartDir  = "../helm/carillon"
	namespace = "jobs"
)

// serviceMonitor and prometheusRule are what the chart uses of the types of the Prometheus operator.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		NamespaceSelector struct {
			MatchNames []string `json:"matchNames"`
		} `json:"namespaceSelector"`
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port          string              `json:"port"`
			Path          string              `json:"path"`
			Interval      string              `json:"interval"`
			HonorLabels   bool                `json:"honorLabels"`
			Params        map[string][]string `json:"params"`
			Scheme        string              `json:"scheme"`
			Authorization *struct {
				Credentials corev1.SecretKeySelector `json:"credentials"`
			} `json:"authorization"`
			TLSConfig *struct {
				CA struct {
					Secret corev1.SecretKeySelector `json:"secret"`
				} `json:"ca"`
			} `json:"tlsConfig"`
			Relabelings []struct {
				SourceLabels []string `json:"sourceLabels"`
				TargetLabel  string   `json:"targetLabel"`
				Replacement  string   `json:"replacement"`
			} `json:"relabelings"`
		} `json:"endpoints"`
	} `json:"spec"`
}

type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              ruleFile `json:"spec"`
}

type ruleFile struct {
	Groups []struct {
		Name     string `json:"name"`
		Interval string `json:"interval"`
		Rules    []struct {
			Record        string            `json:"record"`
			Alert         string            `json:"alert"`
			Expr          string            `json:"expr"`
			For           string            `json:"for"`
			KeepFiringFor string            `json:"keep_firing_for"`
			Labels        map[string]string `json:"labels"`
			Annotations   map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

// kinds are the objects that the chart may make. What a test does not know how to read is an error.
var kinds = map[string]func() metav1.Object{
	"apps/v1 StatefulSet":                     func() metav1.Object { return &appsv1.StatefulSet{} },
	"apps/v1 Deployment":                      func() metav1.Object { return &appsv1.Deployment{} },
	"v1 Service":                              func() metav1.Object { return &corev1.Service{} },
	"v1 ServiceAccount":                       func() metav1.Object { return &corev1.ServiceAccount{} },
	"v1 ConfigMap":                            func() metav1.Object { return &corev1.ConfigMap{} },
	"policy/v1 PodDisruptionBudget":           func() metav1.Object { return &policyv1.PodDisruptionBudget{} },
	"networking.k8s.io/v1 NetworkPolicy":      func() metav1.Object { return &networkingv1.NetworkPolicy{} },
	"monitoring.coreos.com/v1 ServiceMonitor": func() metav1.Object { return &serviceMonitor{} },
	"monitoring.coreos.com/v1 PrometheusRule": func() metav1.Object { return &prometheusRule{} },
}

// release is a chart that was rendered, with its objects by kind and name.
type release struct {
	objects map[string]metav1.Object
	notes   string
}

var separator = regexp.MustCompile(`(?m)^---\s*$`)

// render does what `helm template RELEASE --namespace jobs --values` does.
func render(t *testing.T, name, values string) (*release, error) {
	t.Helper()
	ch, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]any{}
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		t.Fatal(err)
	}
	vals, err := chartutil.ToRenderValues(ch, given, chartutil.ReleaseOptions{Name: name, Namespace: namespace,
		Revision: 1, IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(ch, vals)
	if err != nil {
		return nil, err
	}
	r := &release{objects: map[string]metav1.Object{}}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(path, "NOTES.txt") {
			r.notes = files[path]
			continue
		}
		for _, doc := range separator.Split(files[path], -1) {
			var meta metav1.TypeMeta
			if err := yaml.Unmarshal([]byte(doc), &meta); err != nil {
				t.Fatalf("%s: %v\n%s", path, err, doc)
			}
			if meta.Kind == "" {
				if rest := strings.TrimSpace(doc); rest != "" {
					t.Errorf("%s renders something that is no object: %q", path, rest)
				}
				continue
			}
			make := kinds[meta.APIVersion+" "+meta.Kind]
			if make == nil {
				t.Fatalf("%s: %s %s is no kind that this test knows", path, meta.APIVersion, meta.Kind)
			}
			obj := make()
			if err := yaml.UnmarshalStrict([]byte(doc), obj); err != nil {
				t.Fatalf("%s: %v\n%s", path, err, doc)
			}
			key := meta.Kind + " " + obj.GetName()
			if r.objects[key] != nil {
				t.Errorf("%s is made twice", key)
			}
			r.objects[key] = obj
		}
	}
	return r, nil
}

// mustRender is a render that has to succeed.
func mustRender(t *testing.T, name, values string) *release {
	t.Helper()
	r, err := render(t, name, values)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// get is an object by its kind and name.
func get[T metav1.Object](t *testing.T, r *release, key string) T {
	t.Helper()
	obj, ok := r.objects[key].(T)
	if !ok {
		t.Fatalf("there is no %s, but %v", key, slices.Sorted(maps.Keys(r.objects)))
	}
	return obj
}

// pod is the template of a pod, with the selector that finds it.
type pod struct {
	name string // of the first one
	corev1.PodTemplateSpec
	selector map[string]string
}

// pods are those of the release.
func (r *release) pods() (out []pod) {
	for _, key := range slices.Sorted(maps.Keys(r.objects)) {
		switch o := r.objects[key].(type) {
		case *appsv1.StatefulSet:
			out = append(out, pod{o.Name + "-0", o.Spec.Template, o.Spec.Selector.MatchLabels})
		case *appsv1.Deployment:
			out = append(out, pod{o.Name + "-7d4b9c5f6-abcde", o.Spec.Template, o.Spec.Selector.MatchLabels})
		}
	}
	return out
}

// expand replaces $(NAME) in an argument as kubelet does.
func expand(arg string, env map[string]string) string {
	for name, value := range env {
		arg = strings.ReplaceAll(arg, "$("+name+")", value)
	}
	return arg
}

// environment is that of a container in a pod with a name. A value that comes from elsewhere is given by the test.
func environment(t *testing.T, c corev1.Container, name string, secrets map[string]string) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, e := range c.Env {
		switch from := e.ValueFrom; {
		case from == nil:
			env[e.Name] = e.Value
		case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.name":
			env[e.Name] = name
		case from.SecretKeyRef != nil:
			value, ok := secrets[from.SecretKeyRef.Name+"/"+from.SecretKeyRef.Key]
			if !ok {
				t.Fatalf("%s has %s from a Secret that is not there", name, e.Name)
			}
			env[e.Name] = value
		default:
			t.Fatalf("%s has %s from %+v", name, e.Name, from)
		}
	}
	return env
}

// command is what a container runs, without the program.
func command(t *testing.T, c corev1.Container, env map[string]string) (args []string) {
	t.Helper()
	if len(c.Command) > 1 || len(c.Command) == 1 && c.Command[0] != "/carillon" { // the entry point of the image
		t.Fatalf("%s runs %q", c.Name, c.Command)
	}
	for _, a := range c.Args {
		args = append(args, expand(a, env))
		if strings.Contains(args[len(args)-1], "$(") {
			t.Errorf("%s: %q names a variable that is not there", c.Name, a)
		}
	}
	return args
}

// binary builds the product once.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(built, "carillon")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

var built string // where it is built

func TestMain(m *testing.M) {
	code := func() int {
		dir, err := os.MkdirTemp("", "carillon-chart-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		built = dir
		return m.Run()
	}()
	os.Exit(code)
}

// carillon is a command of the binary in an environment that has nothing else, as in the image.
func carillon(t *testing.T, env map[string]string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = []string{"PATH=/nowhere"}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}
