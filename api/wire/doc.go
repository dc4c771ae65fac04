// Package wire has what travels between the API and its clients: requests, answers, media types and the msgpack form
// of the workers' messages. Server and client both stand on it, so that neither imports the other for a type.
package wire
