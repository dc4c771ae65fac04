# The build line is the one that .ci/run uses; the final image holds the static binary and CA certificates, nothing else.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /out/carillon .
RUN mkdir -p /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/carillon /carillon
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
VOLUME /data
EXPOSE 7400
ENTRYPOINT ["/carillon"]
CMD ["server", "--node-id", "n1", "--listen", "0.0.0.0:7400", "--data-dir", "/data", "--bootstrap"]
HEALTHCHECK --interval=10s --timeout=3s CMD ["/carillon", "status", "--addr", "127.0.0.1:7400"]
