package notify

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/proof/port"
)

// mailServer is as much of one as these tests need. answers replaces what it says to a verb; an empty answer hangs up,
// "-" says nothing.
type mailServer struct {
	ln      net.Listener
	tls     *tls.Config // offers STARTTLS
	answers map[string]string

	mu    sync.Mutex
	mails []string
	rcpts []string
	verbs []string
	wg    sync.WaitGroup
}

func newMailServer(t *testing.T, answers map[string]string, conf *tls.Config) *mailServer {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &mailServer{ln: ln, tls: conf, answers: answers}
	s.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() { ln.Close(); s.wg.Wait() })
	return s
}

func (s *mailServer) serve(c net.Conn) {
	defer func() { c.Close() }()
	r := bufio.NewReader(c)
	say := func(verb, text string) bool {
		if a, ok := s.answers[verb]; ok {
			if text = a; text == "-" {
				io.Copy(io.Discard, r) // until the other side gives up
			}
			if text == "" || text == "-" {
				return false
			}
		}
		_, err := fmt.Fprintf(c, "%s\r\n", text)
		return err == nil
	}
	for good := say("HELLO", "220 hello"); good; {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		verb, _, _ := strings.Cut(line, " ")
		s.mu.Lock()
		s.verbs = append(s.verbs, verb)
		s.mu.Unlock()
		switch verb {
		case "EHLO":
			if good = true; s.tls != nil {
				good = say(verb, "250-me\r\n250-STARTTLS\r\n250 AUTH PLAIN")
			} else {
				good = say(verb, "250-me\r\n250 AUTH PLAIN")
			}
		case "STARTTLS":
			if good = say(verb, "220 go"); good {
				tc := tls.Server(c, s.tls)
				if tc.Handshake() != nil {
					return
				}
				c, r = tc, bufio.NewReader(tc)
			}
		case "AUTH":
			good = say(verb, "235 in")
		case "RCPT":
			if s.mu.Lock(); strings.Contains(line, "gone@") {
				s.mu.Unlock()
				good = say("", "550 no such user")
				break
			}
			s.rcpts = append(s.rcpts, line)
			s.mu.Unlock()
			good = say(verb, "250 ok")
		case "DATA":
			if good = say(verb, "354 go on"); !good || s.answers[verb] != "" {
				break
			}
			var b strings.Builder
			for {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				if line == ".\r\n" {
					break
				}
				b.WriteString(strings.TrimPrefix(line, "."))
			}
			s.mu.Lock()
			s.mails = append(s.mails, b.String())
			s.mu.Unlock()
			good = say("DOT", "250 taken")
		case "QUIT":
			say(verb, "221 bye")
			return
		default:
			good = say(verb, "250 ok")
		}
	}
}

func (s *mailServer) settings() *Settings {
	return &Settings{SMTP: SMTP{Addr: s.ln.Addr().String(), From: "carillon@example.com"}, Timeout: 20 * time.Second}
}

func TestMail(t *testing.T) {
	s := newMailServer(t, nil, nil)
	m := testMessage()
	m.Name, m.Error = "nächtlich", "exit 1\n.\nBcc: everybody@example.com\n"+strings.Repeat("x", 3000)
	set := s.settings()
	r := set.Mail(context.Background(), []string{"ops@example.com", "gone@example.com", "dev@example.com"}, m)
	if r.Outcome != Sent || r.Err == nil || !strings.Contains(r.Err.Error(), "gone@example.com: 550") {
		t.Fatalf("%+v", r)
	}
	if len(s.mails) != 1 || len(s.rcpts) != 2 || !strings.Contains(s.rcpts[1], "dev@example.com") {
		t.Fatalf("%d mails to %v", len(s.mails), s.rcpts)
	}
	for _, l := range strings.Split(s.mails[0], "\r\n") {
		if len(l) > 998 || strings.ContainsAny(l, "\r\n") {
			t.Errorf("a line of %d bytes", len(l))
		}
	}
	got, err := mail.ReadMessage(strings.NewReader(s.mails[0]))
	if err != nil {
		t.Fatal(err)
	}
	subject, err := (&mime.WordDecoder{}).DecodeHeader(got.Header.Get("Subject"))
	if err != nil || subject != "[Carillon] Job nächtlich failed" {
		t.Errorf("%q %v", subject, err)
	}
	if id := got.Header.Get("Message-ID"); id != "<j_7.failure.3.1700000060000@example.com>" {
		t.Error(id)
	}
	if d, err := got.Header.Date(); err != nil || d.UnixMilli() != int64(m.At) {
		t.Error(d, err)
	}
	if to, err := got.Header.AddressList("To"); err != nil || len(to) != 2 || got.Header.Get("Bcc") != "" {
		t.Error(to, err)
	}
	body, err := io.ReadAll(quotedprintable.NewReader(got.Body))
	if err != nil || !strings.Contains(string(body), "Bcc: everybody@example.com\r\n"+strings.Repeat("x", 3000)) ||
		!strings.Contains(string(body), "Run:       r_1") {
		t.Errorf("%s %v", body, err)
	}
}

// Each failure of a mail server is taken, not taken, or unknown.
func TestMailOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		verb, answer string
		outcome      Outcome
		mails        int
	}{
		"hangs up at once":        {"HELLO", "", Retry, 0},
		"too busy":                {"HELLO", "421 later", Retry, 0},
		"unknown sender":          {"MAIL", "550 who", Retry, 0},
		"greylisted":              {"RCPT", "451 later", Retry, 0},
		"no such recipient":       {"RCPT", "550 no", Permanent, 0},
		"hangs up before it":      {"DATA", "", Retry, 0},
		"does not want the mail":  {"DOT", "554 spam", Permanent, 1},
		"is full":                 {"DOT", "452 full", Retry, 1},
		"hangs up after it":       {"DOT", "", Unknown, 1},
		"says nothing after it":   {"DOT", "-", Unknown, 1},
		"hangs up after taking":   {"QUIT", "", Sent, 1},
		"says nothing at all":     {"HELLO", "-", Retry, 0},
		"no mail without the dot": {"DATA", "-", Retry, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newMailServer(t, map[string]string{c.verb: c.answer}, nil)
			set := s.settings()
			if c.answer == "-" {
				set.Timeout = 700 * time.Millisecond
			}
			r := set.Mail(context.Background(), []string{"ops@example.com"}, testMessage())
			s.mu.Lock()
			defer s.mu.Unlock()
			if r.Outcome != c.outcome || len(s.mails) != c.mails {
				t.Errorf("%+v, %d mails", r, len(s.mails))
			}
		})
	}
	for _, addr := range []string{port.Reserve(t), "", "nonsense"} {
		if r := (&Settings{SMTP: SMTP{Addr: addr}}).Mail(context.Background(), []string{"a@b.c"},
			testMessage()); r.Outcome != Retry || r.Err == nil {
			t.Errorf("%q: %+v", addr, r)
		}
	}
}

// TLS is used where it is offered, the password goes only through it, and a certificate that does not fit ends the try.
func TestMailTLS(t *testing.T) {
	cert, pool := certificate(t)
	s := newMailServer(t, nil, &tls.Config{Certificates: []tls.Certificate{cert}})
	set := s.settings()
	set.SMTP.User, set.SMTP.Password = "carillon", "secret"
	if r := set.Mail(context.Background(), []string{"ops@example.com"}, testMessage()); r.Outcome != Retry ||
		len(s.mails) != 0 {
		t.Fatalf("an unknown authority: %+v", r)
	}
	set.SMTP.TLS = &tls.Config{RootCAs: pool}
	if r := set.Mail(context.Background(), []string{"ops@example.com"}, testMessage()); r.Outcome != Sent ||
		len(s.mails) != 1 {
		t.Fatalf("%+v", r)
	}
	if v := strings.Join(s.verbs, " "); !strings.Contains(v, "STARTTLS EHLO AUTH MAIL") {
		t.Error(v)
	}
	refuses := newMailServer(t, map[string]string{"AUTH": "535 no"}, &tls.Config{Certificates: []tls.Certificate{cert}})
	set.SMTP.Addr = refuses.ln.Addr().String()
	if r := set.Mail(context.Background(), []string{"ops@example.com"}, testMessage()); r.Outcome != Retry ||
		strings.Contains(r.Err.Error(), "secret") {
		t.Errorf("%+v", r)
	}
}

func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(c)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// A mail server whose greeting does not end is not read for ever.
func TestMailServerWithoutEnd(t *testing.T) {
	s := newMailServer(t, map[string]string{"HELLO": strings.Repeat("x", 3*mostAnswers)}, nil)
	r := s.settings().Mail(context.Background(), []string{"ops@example.com"}, testMessage())
	if r.Outcome != Retry || r.Err == nil || !strings.Contains(r.Err.Error(), "the server sent more than") {
		t.Errorf("%+v", r)
	}
}
