package api

import (
	_ "embed" // the OpenAPI document
	"sync"

	"github.com/carillon-scheduler/carillon/api/openapi"
)

// openapiJSON is the document without the types of job, which register themselves.
//
//go:embed openapi.json
var openapiJSON string

var openapiDocument = sync.OnceValue(func() []byte { return openapi.WithJobTypes(openapiJSON) })

var jobFileSchema = sync.OnceValue(func() []byte { return openapi.JobFile(openapiDocument()) })

func (c *call) jobSchema() error {
	c.w.Header().Set("Content-Type", "application/schema+json")
	c.w.Write(jobFileSchema()) //nolint:errcheck // the client hung up
	return nil
}

func (c *call) openapi() error {
	c.w.Header().Set("Content-Type", "application/json")
	c.w.Write(openapiDocument()) //nolint:errcheck // the client hung up
	return nil
}
