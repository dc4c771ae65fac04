# The final image holds the static binary and CA certificates, nothing else: no shell, no users, no time zones (they are in the binary).
# The compiler's image is named by its tag: a digest that was not checked against the registry would be no safer. Nothing of it but the CA
# certificates gets into the final image, and another build of the same source gives the same binary.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=""
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w -X github.com/carillon-scheduler/carillon/cmd.buildVersion=${VERSION}" -o /out/carillon .
RUN mkdir -p -m 700 /out/data /out/keys

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/carillon /carillon
# A volume that is mounted here for the first time takes over the owner.
COPY --from=build --chown=65532:65532 /out/data /data
COPY --from=build --chown=65532:65532 /out/keys /keys
USER 65532:65532
VOLUME /data
EXPOSE 7400
ENTRYPOINT ["/carillon"]
CMD ["server", "--node-id", "n1", "--listen", "0.0.0.0:7400", "--data-dir", "/data", "--bootstrap"]
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s CMD ["/carillon", "status", "--ready", "--addr", "unix:/data/admin.sock"]
