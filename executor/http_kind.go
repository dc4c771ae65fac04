package executor

import (
	"encoding/json"
	"strings"

	"github.com/carillon-scheduler/carillon/job"
)

func init() {
	Register(Kind{
		Kind: job.Kind{Type: job.TypeHTTP, Check: job.CheckHTTP, Schema: httpSchema,
			Secrets: map[string]job.SecretPlace{"url": job.SecretInURL, "headers": job.SecretInHeaders,
				"body": job.SecretInData}},
		Node: true,
		Submit: []Choice{{
			Flag: Flag{Name: "http", Help: "call this URL"},
			With: []Flag{
				{Name: "method", Help: "HTTP method (default POST with a body, else GET)"},
				headerFlag,
				{Name: "body", Help: "HTTP body: JSON, text, or @FILE"},
				{Name: "expect-status", Help: "statuses that mean success, e.g. 200,204 or 2xx"},
			},
			Payload: httpPayload,
		}},
		New: func(t *Tools, o ToolsOptions) (Runner, error) {
			h := NewHTTP(HTTPOptions{Version: o.Version, Egress: o.Egress})
			t.OnClose(h.Close)
			return h, nil
		},
	})
}

func httpPayload(in Input) (any, error) {
	p := job.HTTPPayload{URL: in.Text("http"), Method: strings.ToUpper(in.Text("method"))}
	var err error
	if p.Headers, err = in.Headers("header"); err != nil {
		return nil, err
	}
	if p.Body, err = in.JSON("body"); err != nil {
		return nil, err
	}
	if expect := in.Text("expect-status"); expect != "" {
		list, _ := json.Marshal(strings.Split(expect, ","))
		if err := json.Unmarshal(list, &p.ExpectStatus); err != nil {
			return nil, job.Invalid("--expect-status", "", "%v", err)
		}
	}
	return p, nil
}

const httpSchema = `{
 "title": "HTTPPayload",
 "type": "object",
 "description": "Payload of an http job.",
 "properties": {
  "url": {"type": "string", "description": "http or https."},
  "method": {"type": "string", "description": "POST if there is a body, else GET."},
  "headers": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Sent with the request."},
  "body": {"description": "A JSON string is sent as it is, anything else as JSON."},
  "expect_status": {"description": "Statuses that mean success: 200, \"2xx\", \"200-204\" or a list of those. Default 2xx."},
  "retry_client_errors": {
   "type": "boolean",
   "description": "Retry every 3xx and 4xx. Without it they are permanent failures, except 408, 425 and 429.",
   "default": false
  },
  "insecure_skip_verify": {"type": "boolean", "description": "Accept any certificate.", "default": false}
 },
 "additionalProperties": false,
 "required": ["url"]
}`
