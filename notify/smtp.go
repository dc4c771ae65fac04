package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/smtp"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// SMTP is a mail server and who mail comes from. Addr "": there is none.
type SMTP struct {
	Addr     string // host:port; port 465 is TLS from the first byte, others STARTTLS if it is offered
	From     string
	User     string
	Password string
	TLS      *tls.Config // nil: the system's roots
	// Namespaces are those whose jobs may send mail by it; none: the usual one, and * is all.
	Namespaces []string
}

// serves says that jobs of a namespace may send mail.
func (s *SMTP) serves(namespace string) bool {
	namespace = cmp.Or(namespace, job.DefaultNamespace)
	if len(s.Namespaces) == 0 {
		return namespace == job.DefaultNamespace
	}
	return slices.Contains(s.Namespaces, namespace) || slices.Contains(s.Namespaces, job.AllNamespaces)
}

// Mail sends a message to addresses, in one mail. It arrived if the server took it for one of them; the error then
// names those that it refused.
func (s *Settings) Mail(ctx context.Context, to []string, m *Message) Result {
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	if s.SMTP.Addr == "" {
		return again(errors.New("this node was not started with a mail server"))
	}
	if !s.SMTP.serves(m.Namespace) { // another node that leads later may have other settings
		return again(fmt.Errorf("the mail server of this node is not for namespace %s", m.Namespace))
	}
	return s.SMTP.mail(ctx, to, m)
}

// mostAnswers is what is read from a mail server for one mail. net/smtp keeps a line until it ends.
const mostAnswers = 1 << 20

// answers is a connection of which no more than that is read.
type answers struct {
	net.Conn
	left int
}

func (a *answers) Read(p []byte) (int, error) {
	if a.left <= 0 {
		return 0, fmt.Errorf("the server sent more than %d bytes", mostAnswers)
	}
	n, err := a.Conn.Read(p[:min(len(p), a.left)])
	a.left -= n
	return n, err
}

func (s *SMTP) mail(ctx context.Context, to []string, m *Message) Result {
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return again(err)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr)
	if err != nil {
		return again(err)
	}
	defer conn.Close()
	conn = &answers{conn, mostAnswers}
	// net/smtp knows no contexts: a connection whose deadline has passed ends whatever is under way.
	if d, ok := ctx.Deadline(); ok {
		conn.SetDeadline(d)
	}
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	conf := &tls.Config{}
	if s.TLS != nil {
		conf = s.TLS.Clone()
	}
	conf.ServerName = host
	if port == "465" {
		conn = tls.Client(conn, conf)
	}
	c, err := smtp.NewClient(conn, host)
	if err != nil {
		return again(err).because("greeting")
	}
	defer c.Close()
	if err := c.Hello("localhost"); err != nil {
		return again(err).because("EHLO")
	}
	if ok, _ := c.Extension("STARTTLS"); ok {
		if err := c.StartTLS(conf); err != nil {
			return again(err).because("STARTTLS")
		}
	}
	if s.User != "" {
		if err := c.Auth(smtp.PlainAuth("", s.User, s.Password, host)); err != nil {
			return again(err).because("AUTH")
		}
	}
	if err := c.Mail(s.From); err != nil {
		return again(err).because("MAIL FROM")
	}
	var taken []string
	var bad []error
	worst := Permanent
	for _, a := range to {
		if err := c.Rcpt(a); err != nil {
			r := reply(err)
			if r.Outcome == Retry {
				worst = Retry
			}
			bad = append(bad, fmt.Errorf("%s: %w", a, err))
			continue
		}
		taken = append(taken, a)
	}
	if len(taken) == 0 {
		return Result{Outcome: worst, Err: errors.Join(bad...)}
	}
	w, err := c.Data()
	if err != nil {
		return reply(err).because("DATA")
	}
	if _, err := w.Write(s.compose(taken, m)); err != nil {
		return again(err) // without the last dot it is no mail
	}
	if err := w.Close(); err != nil {
		var p *textproto.Error
		if errors.As(err, &p) {
			return reply(err).because("DATA")
		}
		return unknown(fmt.Errorf("no answer to the mail: %w", err)) // the dot left, and what came of it is not known
	}
	c.Quit() // it has the mail, whatever it says now
	return Result{Outcome: Sent, Err: errors.Join(bad...)}
}

// reply says what a server's refusal of a recipient or of the mail means. 5xx will be the same next time; everything
// else, a broken line too, may not. What is refused before that is about how the node was started, which an operator
// may put right.
func reply(err error) Result {
	var p *textproto.Error
	if errors.As(err, &p) && p.Code/100 == 5 {
		return refused(err)
	}
	return again(err)
}

// compose is the mail.
func (s *SMTP) compose(to []string, m *Message) []byte {
	var b bytes.Buffer
	domain := "carillon"
	if _, d, ok := strings.Cut(s.From, "@"); ok {
		domain = d
	}
	header := func(k, v string) {
		fmt.Fprintf(&b, "%s: %s\r\n", k, strings.NewReplacer("\r", "", "\n", " ").Replace(v))
	}
	header("From", "Carillon <"+s.From+">")
	header("To", strings.Join(to, ", "))
	header("Subject", mime.QEncoding.Encode("utf-8", "[Carillon] "+m.Title()))
	header("Date", time.UnixMilli(int64(m.At)).UTC().Format(time.RFC1123Z))
	header("Message-ID", "<"+strings.ReplaceAll(m.Key, ":", ".")+"@"+domain+">")
	header("Auto-Submitted", "auto-generated")
	header("MIME-Version", "1.0")
	header("Content-Type", "text/plain; charset=utf-8")
	header("Content-Transfer-Encoding", "quoted-printable")
	b.WriteString("\r\n")
	q := quotedprintable.NewWriter(&b)
	fmt.Fprintf(q, "%s.\r\n\r\n", m.Title())
	for _, l := range m.lines() {
		fmt.Fprintf(q, "%-10s %s\r\n", l[0]+":", l[1])
	}
	if m.Error != "" {
		fmt.Fprintf(q, "\r\n%s\r\n", strings.ReplaceAll(strings.ReplaceAll(m.Error, "\r\n", "\n"), "\n", "\r\n"))
	}
	q.Close()
	return b.Bytes()
}
