package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/membudget"
	"github.com/carillon-scheduler/carillon/job"
)

// Identity is who makes a request, on a cluster that asks.
type Identity struct {
	Token     string // its id; empty: the connection itself says who it is
	Name      string // of the token or the node
	Role      job.TokenRole
	Namespace string // the one that it is for; empty: all
	Shell     bool   // it may create and edit shell jobs
	Worker    wire.WorkerGrant
	Expires   job.Instant
	Node      string // a node of the cluster, which proved it
	Local     bool   // the admin socket of a node

	credential string // the header that says so
}

// localAdmin is what the name of who calls through the admin socket of a node begins with.
const localAdmin = "admin socket of "

// LocalAdmin is who calls through the admin socket of a node: who can open it can read the node's keys.
func LocalAdmin(node string) Identity {
	return Identity{Name: localAdmin + node, Role: job.RoleAdmin, Shell: true, Local: true}
}

// may says whether an identity may call a route, and if not, what is in the way.
func (id *Identity) may(role Role, scope Scope) (string, bool) {
	if id.Node != "" {
		// A node asks for itself. What it passes on for others has their credential.
		return "a node", slices.Contains([]Role{Viewer, Worker, Node, Holder}, role)
	}
	var roles []job.TokenRole
	switch role {
	case Viewer:
		roles = []job.TokenRole{job.RoleViewer, job.RoleOperator, job.RoleAdmin}
	case Operator:
		roles = []job.TokenRole{job.RoleOperator, job.RoleAdmin}
	case Admin:
		roles = []job.TokenRole{job.RoleAdmin}
	case Worker:
		roles = []job.TokenRole{job.RoleWorker}
	case Holder:
		roles = job.TokenRoles
	}
	if !slices.Contains(roles, id.Role) {
		return "the role " + string(id.Role), false
	}
	if scope == OfCluster && id.Namespace != "" {
		return "the namespace " + id.Namespace + " only", false
	}
	return "", true
}

// namesOnlyOwn refuses a request that names another namespace than that of its token. What its body names is looked at
// where that is read.
func (id *Identity) namesOnlyOwn(u *url.URL) error {
	if id.Namespace == "" || u.RawQuery == "" {
		return nil
	}
	for _, given := range u.Query()[namespaceParam] {
		if err := id.keepsTo(given); err != nil {
			return err
		}
	}
	return nil
}

// Auth knows who the tokens of a cluster belong to.
type Auth interface {
	// Authenticate says whose token it is. Its error says why it is not valid; the identity then has the id of the
	// token if the secret is right all the same. One that is not known may be so new that this node has not heard of it
	// yet: patient waits a moment for that.
	Authenticate(ctx context.Context, t keys.Token, patient bool) (Identity, error)
	// Hold calls end, at most once, as soon as the token with that id is no longer valid, until stop is called.
	Hold(id string, end func(error)) (stop func())
	// Votes says whether a node is one of those that have the cluster's keys.
	Votes(node string) bool
	// Refused is told of requests that are not let through.
	Refused(r *http.Request, err error)
}

type (
	identityKey struct{}
	localKey    struct{}
)

// IdentityOf is who makes a request; nil on a cluster that does not ask.
func IdentityOf(ctx context.Context) *Identity {
	id, _ := ctx.Value(identityKey{}).(*Identity)
	return id
}

// ShareOf is by whose share of the node's memory a request is read. between says that it is one between nodes.
func ShareOf(ctx context.Context, secure, between bool) membudget.Who {
	switch id := IdentityOf(ctx); {
	case between || id != nil && (id.Node != "" || id.Local):
		return membudget.Who{Kind: membudget.Member}
	case id != nil:
		return membudget.Who{Kind: membudget.Caller, Token: id.Token}
	case secure:
		return membudget.Who{Kind: membudget.Stranger}
	}
	return membudget.Who{Kind: membudget.Caller}
}

// CredentialOf is the caller's own header, for what is asked on their behalf.
func CredentialOf(ctx context.Context) string {
	if id := IdentityOf(ctx); id != nil {
		return id.credential
	}
	return ""
}

// WithIdentity says who makes a request.
func WithIdentity(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, &id)
}

// WithLocal says that a connection came in by the node's admin socket.
func WithLocal(ctx context.Context) context.Context { return context.WithValue(ctx, localKey{}, true) }

// CheckShell refuses jobs of the type shell to those who may not write them. old is the definition that is replaced.
func CheckShell(ctx context.Context, specs ...*job.Spec) error {
	id := IdentityOf(ctx)
	if id == nil || id.Shell {
		return nil
	}
	for _, s := range specs {
		if s != nil && s.Type == job.TypeShell {
			return &job.Error{Code: job.CodeForbidden, Field: "type",
				Message: "the token " + id.Name + " may not create or edit shell jobs",
				Remedy:  "use a token that was made with `carillon token create --shell`"}
		}
	}
	return nil
}

// MayGrant refuses to hand on the right to write shell jobs, or what includes it, to those who do not have it.
func MayGrant(ctx context.Context, field, what string) error {
	id := IdentityOf(ctx)
	if id == nil || id.Shell {
		return nil
	}
	return &job.Error{Code: job.CodeForbidden, Field: field,
		Message: "the token " + id.Name + " may not create or edit shell jobs, and so cannot " + what,
		Remedy:  "use a token that was made with `carillon token create --shell`, or a node's admin socket"}
}

// authorizer is the one place where it is decided who may call what. It is around everything that a port serves: in
// front of forwarding, and on the leader again, because what a request passed on its way cannot be relied on.
type authorizer struct {
	next   http.Handler
	auth   Auth
	self   string // this node's id
	mux    *http.ServeMux
	bounds *bounds
}

// Authorize lets through what the routes and the endpoints allow, within the limits, and nothing else.
func Authorize(next http.Handler, auth Auth, self string, limits Limits, endpoints ...Endpoint) http.Handler {
	z := &authorizer{next: next, auth: auth, self: self, mux: http.NewServeMux(), bounds: newBounds(limits)}
	for pattern, res := range resources(routes()) {
		z.mux.Handle(pattern, &demand{res: res})
	}
	for _, e := range slices.Concat(debugEndpoints(), endpoints) {
		e.mustBe()
		z.mux.Handle(e.Path, &demand{role: e.Role})
	}
	return z
}

// find is the row of the table that a request is for, if there is one.
func find(mux *http.ServeMux, r *http.Request) (*demand, *route) {
	h, _ := mux.Handler(r)
	d, ok := h.(*demand)
	if !ok || d.res == nil {
		return d, nil
	}
	path := r.URL.EscapedPath()
	value, err := url.PathUnescape(path[strings.LastIndexByte(path, '/')+1:])
	if err != nil {
		return d, nil
	}
	verb := ""
	if i := strings.LastIndexByte(value, ':'); d.res.param != "" && i >= 0 {
		verb = value[i+1:]
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if rt, ok := d.res.methods[verb][method]; ok {
		return d, &rt
	}
	return d, nil
}

// templates are the rows of the table: those whose path is the same in every request by that, so that a worker's
// requests need no search, and all of them in a ServeMux.
var templates = sync.OnceValues(func() (map[[2]string]*route, *http.ServeMux) {
	plain, mux := map[[2]string]*route{}, http.NewServeMux()
	for _, rt := range routes() {
		if !strings.Contains(rt.path, "{") {
			plain[[2]string{rt.method, rt.path}] = &rt
		}
	}
	for pattern, res := range resources(routes()) {
		mux.Handle(pattern, &demand{res: res})
	}
	return plain, mux
})

// Template is the row of the table that a request is for, as method and path: of these there are only so many, whatever
// is asked for. waits says that how long it takes is up to its caller, or to what is waited for.
func Template(r *http.Request) (method, path string, waits bool) {
	plain, mux := templates()
	rt := plain[[2]string{r.Method, r.URL.Path}]
	if rt == nil {
		_, rt = find(mux, r)
	}
	if rt == nil {
		return "", "", false
	}
	return rt.method, rt.path, rt.body.streams() && rt.path != "/metrics" || rt.body.polls()
}

// demand is what a path asks for. It is an http.Handler so that ServeMux finds it by the rules by which it finds the
// route; it is not served.
type demand struct {
	res  *resource
	role Role // without a resource
}

func (*demand) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusInternalServerError)
}

// needs is what a request asks for. What is not in the table takes a token too: strangers need not know what there is.
func (z *authorizer) needs(r *http.Request) (Role, Scope, bodyKind) {
	d, rt := find(z.mux, r)
	switch {
	case d != nil && d.res == nil:
		return d.role, OfCluster, emptyBody
	case rt == nil:
		return Holder, Everywhere, emptyBody // of OPTIONS, or a path, a method or an action that there is not
	}
	return rt.needs(r), rt.scope(), rt.body
}

func (z *authorizer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	peer, _ := keys.PeerOf(r.Context())
	node := peer.Node
	if node == "" { // anybody can write a header
		for _, name := range wire.NodeHeaders {
			r.Header.Del(name)
		}
	}
	role, scope, body := z.needs(r)
	if role == Anyone {
		// Who asks a node that passes it on is as strange as who asks here.
		if node == "" || r.Header.Get(wire.ForwardedHeader) != "" {
			leave, err := z.bounds.stranger(sourceOf(r, node), r.Method == http.MethodPost)
			if err == nil && r.ContentLength > membudget.MostOfStranger {
				leave()
				err = job.Errorf(job.CodeTooLarge, "send less", "without a token: at most %d bytes",
					membudget.MostOfStranger)
			}
			if err != nil {
				z.refuse(w, r, err)
				return
			}
			defer leave()
			r.Body = http.MaxBytesReader(w, r.Body, membudget.MostOfStranger)
		}
		z.next.ServeHTTP(w, r)
		return
	}
	if role == Node && len(r.Header.Values(wire.AddressHeader)) > 0 {
		z.refuse(w, r, job.Errorf(job.CodeForbidden, "ask that node yourself",
			"a node does not forward requests that only nodes may make"))
		return
	}
	id, err := z.identify(r, node, role)
	if err == nil && node == "" && id.Token != "" { // what a node passes on was counted there
		var leave func()
		if leave, err = z.bounds.enter(&id, kindOf(&id, role, body)); err == nil {
			defer leave()
		}
	}
	if err == nil {
		if what, ok := id.may(role, scope); !ok {
			err = errRole(id, what, role)
		} else if scope == InNamespace {
			err = id.namesOnlyOwn(r.URL)
		}
	}
	if err != nil {
		z.refuse(w, r, err)
		return
	}
	ctx := context.WithValue(r.Context(), identityKey{}, &id)
	if id.Token != "" && !revokes(r) {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		defer z.auth.Hold(id.Token, func(err error) {
			cancel(err)
			// A handler that waits for a body, or for a client that does not read, looks at no context.
			rc := http.NewResponseController(w)
			deadline(rc.SetReadDeadline, time.Nanosecond)
			deadline(rc.SetWriteDeadline, lastWords)
		})()
	}
	z.next.ServeHTTP(w, r.WithContext(ctx))
}

// revokes says whether a request revokes a token: it may be its own, and is answered all the same.
func revokes(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, prefix+"/tokens/") && strings.HasSuffix(r.URL.Path, ":revoke")
}

// refuse answers a request that is not let through.
func (z *authorizer) refuse(w http.ResponseWriter, r *http.Request, err error) {
	z.auth.Refused(r, err)
	switch job.CodeOf(err) {
	case job.CodeUnauthenticated:
		w.Header().Set("WWW-Authenticate", `Bearer realm="carillon"`)
	case job.CodeTooManyRequests:
		var e *tooMany
		if errors.As(err, &e) {
			w.Header().Set("Retry-After", e.seconds())
		}
	}
	w.Header().Set("Cache-Control", "no-store")
	WriteError(w, err)
}

// lastWords is how long a request whose token was revoked has to say so.
const lastWords = 500 * time.Millisecond

// identify says who makes a request.
func (z *authorizer) identify(r *http.Request, node string, role Role) (Identity, error) {
	switch local, _ := r.Context().Value(localKey{}).(bool); {
	case local:
		return LocalAdmin(z.self), nil
	case node != "" && (role == Node || r.Header.Get(wire.ForwardedHeader) == ""):
		return Identity{Name: node, Node: node}, nil
	case node != "" && r.Header.Get(wire.LocalHeader) != "":
		if !z.auth.Votes(node) {
			return Identity{}, job.Errorf(job.CodeForbidden, "use the admin socket of a voter, or a token",
				"%s does not vote: its admin socket only serves what the node answers itself", node)
		}
		return LocalAdmin(node), nil
	}
	text, err := bearer(r.Header, role)
	if err != nil {
		return Identity{}, err
	}
	id, err := z.bounds.guess(sourceOf(r, node), func(patient bool) (Identity, error) {
		t, err := keys.ParseToken(keys.APIToken, text)
		if err != nil {
			var e *job.Error
			if errors.As(err, &e) {
				err = job.Errorf(job.CodeUnauthenticated, e.Remedy, "this is not a token: %s", e.Message)
			}
			return Identity{}, err
		}
		return z.auth.Authenticate(r.Context(), t, patient)
	})
	id.credential = r.Header.Get("Authorization")
	return id, err
}

const tokenRemedy = "run `carillon login`, or set --token-file or CARILLON_TOKEN_FILE; other clients send the " +
	"header Authorization: Bearer TOKEN"

// bearer is the text of the token that a request carries.
func bearer(h http.Header, role Role) (string, error) {
	values := h.Values("Authorization")
	if len(values) == 0 {
		return "", job.Errorf(job.CodeUnauthenticated, tokenRemedy, "this needs %s, and none was sent", role.needs())
	}
	scheme, text, _ := strings.Cut(values[0], " ")
	if len(values) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return "", job.Errorf(job.CodeUnauthenticated, tokenRemedy,
			"the header Authorization must be given once, as Bearer TOKEN")
	}
	return text, nil
}

func errRole(id Identity, what string, role Role) error {
	if role == Node {
		return job.Errorf(job.CodeForbidden, "", "this is for nodes of the cluster, and %s is not one", id.Name)
	}
	remedy := "use such a token; an admin makes one with `carillon token create --role " + role.String() + "`"
	if id.Namespace != "" {
		remedy += ", for all namespaces"
	}
	return job.Errorf(job.CodeForbidden, remedy, "this needs %s, but %s has %s", role.needs(), id.Name, what)
}

// needs is a role as a part of a sentence.
func (r Role) needs() string {
	switch r {
	case Holder:
		return "a token"
	case Node:
		return "the certificate of a node"
	}
	return "a token with the role " + r.String()
}

// Revoked is why a request was ended, if that is because its token is no longer valid; nil otherwise.
func Revoked(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != nil && job.CodeOf(cause) == job.CodeUnauthenticated {
		return cause
	}
	return nil
}
