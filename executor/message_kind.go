//go:build unix

package executor

import "github.com/carillon-scheduler/carillon/job"

var brokerFlag = Flag{
	Name: "broker", Help: "broker for a message: a name that the nodes know, nats://HOST:4222 or kafka://HOST:9092",
}

func init() {
	Register(Kind{
		Kind: job.Kind{Type: job.TypeMessage, Check: job.CheckMessage, Schema: messageSchema,
			Secrets: map[string]job.SecretPlace{"headers": job.SecretInHeaders, "data": job.SecretInData}},
		Node: true,
		Submit: []Choice{{
			Flag: Flag{Name: "nats", Help: "publish to this subject of a NATS --broker"},
			With: []Flag{brokerFlag, headerFlag, dataFlag,
				{Name: "jetstream", Form: Switch,
					Help: "with --nats: publish to a JetStream stream, which acknowledges messages and drops repeats"}},
			Payload: messagePayload,
		}, {
			Flag:    Flag{Name: "kafka", Help: "publish to this topic of a Kafka --broker"},
			With:    []Flag{brokerFlag, headerFlag, dataFlag, {Name: "key", Help: "with --kafka: key of the message"}},
			Payload: messagePayload,
		}},
		New: func(t *Tools, o ToolsOptions) (Runner, error) {
			m, err := NewMessage(MessageOptions{Version: o.Version, Brokers: o.Brokers, Egress: o.Egress})
			if err != nil {
				return nil, err
			}
			t.OnClose(m.Close)
			return m, nil
		},
	})
}

func messagePayload(in Input) (_ any, err error) {
	p := job.MessagePayload{Broker: in.Text("broker"), Subject: in.Text("nats"), JetStream: in.On("jetstream"),
		Topic: in.Text("kafka"), Key: in.Text("key")}
	if p.Broker == "" {
		return nil, job.Errorf(job.CodeInvalid,
			"give --broker: a name that the nodes know, nats://HOST:4222 or kafka://HOST:9092",
			"the message has no broker")
	}
	if p.Headers, err = in.Headers("header"); err != nil {
		return nil, err
	}
	p.Data, err = in.JSON("data")
	return p, err
}

const messageSchema = `{
 "title": "MessagePayload",
 "type": "object",
 "description": "Payload of a message job.",
 "properties": {
  "broker": {"type": "string", "description": "A name that the workers know by --broker, or a URL without secrets such as nats://host:4222 or kafka://host:9092."},
  "subject": {"type": "string", "description": "For NATS."},
  "jetstream": {"type": "boolean", "description": "For NATS: wait until a stream has acknowledged it; the idempotency key is its Nats-Msg-Id."},
  "topic": {"type": "string", "description": "For Kafka."},
  "key": {"type": "string", "description": "For Kafka: the key of the message."},
  "headers": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Message headers."},
  "data": {"description": "The message: a string is sent as it is, anything else as JSON."}
 },
 "additionalProperties": false,
 "required": ["broker"]
}`
