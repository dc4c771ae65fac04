package guard

import "net/http"

// ResponseWriter remembers whether an answer has begun.
type ResponseWriter struct {
	http.ResponseWriter
	Status int // 0: it has not
}

func (w *ResponseWriter) WriteHeader(status int) {
	if w.Status == 0 && status >= 200 {
		w.Status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *ResponseWriter) Write(b []byte) (int, error) {
	if w.Status == 0 {
		w.Status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *ResponseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
