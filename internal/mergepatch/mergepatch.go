// Package mergepatch puts RFC 7386 merge patches onto jobs.
package mergepatch

import (
	"encoding/json"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/jsontext"
	"github.com/carillon-scheduler/carillon/job"
)

// Patch is a merge patch of a job's spec, and the version it insists on.
type Patch struct {
	Version uint64 // 0: any
	raw     map[string]json.RawMessage
}

// Read reads a patch.
func Read(body []byte) (Patch, error) {
	var p Patch
	if err := job.DecodeStrict(body, &p.raw); err != nil {
		return p, err
	}
	if p.raw == nil { // RFC 7386 lets null stand for "nothing is left"; a job cannot be nothing
		return p, job.Errorf(job.CodeMalformed, "send an object with the fields to change",
			"a patch of a job cannot be null")
	}
	if err := job.CheckFields(body, job.Job{}); err != nil { // the merge would take the last of two
		return p, err
	}
	if raw, ok := p.raw["version"]; ok && json.Unmarshal(raw, &p.Version) != nil {
		return p, job.Invalid("version", "", "%s is not a usable value", raw)
	}
	delete(p.raw, "version")
	return p, nil
}

// Apply is the patched spec, as text: who reads it knows which fields there are.
func (p Patch) Apply(current job.Spec) ([]byte, error) {
	before, err := jsontext.Marshal(current)
	if err != nil {
		return nil, err
	}
	change, err := jsontext.Marshal(p.raw)
	if err != nil {
		return nil, err
	}
	if err := checkCase(before, change, ""); err != nil {
		return nil, err
	}
	return merge(before, change)
}

// merge works on raw values, so numbers and the inside of payloads come through exactly as they were written.
func merge(target, change []byte) ([]byte, error) {
	members, ok := object(change)
	if !ok {
		return change, nil
	}
	merged, ok := object(target)
	if !ok {
		merged = map[string]json.RawMessage{}
	}
	for k, v := range members {
		if IsNull(v) {
			delete(merged, k)
			continue
		}
		inner, err := merge(merged[k], v)
		if err != nil {
			return nil, err
		}
		merged[k] = inner
	}
	return jsontext.Marshal(merged)
}

// checkCase refuses "Name" where the job has "name". Decoding ignores case, so both would stand in the merged object
// and the old one might win: the patch would be answered with 200 and have changed nothing.
func checkCase(target, change []byte, path string) error {
	members, ok := object(change)
	if !ok {
		return nil
	}
	have, _ := object(target)
	for k, v := range members {
		if _, exact := have[k]; !exact {
			for h := range have {
				if strings.EqualFold(h, k) {
					return &job.Error{Code: job.CodeUnknownField,
						Field: path + k, Message: `there is no such field; did you mean "` + path + h + `"?`,
						Remedy: "write it in lower case"}
				}
			}
		}
		if path == "" && (k == "retry" || k == "missed" || k == "payload") {
			if err := checkCase(have[k], v, k+"."); err != nil {
				return err
			}
		}
	}
	return nil
}

func object(b []byte) (map[string]json.RawMessage, bool) {
	var m map[string]json.RawMessage
	if json.Unmarshal(b, &m) != nil || m == nil {
		return nil, false
	}
	return m, true
}

// IsNull says that a member is to be removed.
func IsNull(b json.RawMessage) bool { return string(b) == "null" }
