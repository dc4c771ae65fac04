{{/* Names have at most 40 characters: those that are derived from them have at most 63, and pods of a StatefulSet fewer than that. */}}
{{- define "carillon.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "carillon.headless" -}}{{ include "carillon.fullname" . }}-nodes{{- end -}}

{{/* What selects pods never changes: a StatefulSet refuses another selector. */}}
{{- define "carillon.selector" -}}
app.kubernetes.io/name: carillon
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "carillon.labels" -}}
{{ include "carillon.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The domain in which pods have their names. */}}
{{- define "carillon.domain" -}}
{{ include "carillon.headless" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{/* All nodes by their stable names: the same list on each of them. */}}
{{- define "carillon.cluster" -}}
{{- $root := . -}}
{{- range $i := until (int .Values.replicas) -}}
{{- if $i }},{{ end -}}
{{ include "carillon.fullname" $root }}-{{ $i }}.{{ include "carillon.domain" $root }}:7400
{{- end -}}
{{- end -}}

{{/* The names of the Services and pods, by which an insecure node answers; a browser's DNS could give it any other. */}}
{{- define "carillon.hosts" -}}
{{- $name := include "carillon.fullname" . -}}
{{- $in := printf "%s.%s" $name .Release.Namespace -}}
{{- concat (list $name $in (print $in ".svc") (printf "%s.svc.%s" $in .Values.clusterDomain)) .Values.allowedHosts | join "," -}}
{{- end -}}

{{- define "carillon.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "carillon.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* own are the repository, tag and digest that come before those of the nodes; a digest is that of one repository. */}}
{{- define "carillon.image" -}}
{{- $image := .root.Values.image -}}
{{- $digest := .own.digest -}}
{{- if not (or .own.repository .own.tag .own.digest) }}{{ $digest = $image.digest }}{{ end -}}
{{- if $digest -}}
{{ .own.repository | default $image.repository }}@{{ $digest }}
{{- else -}}
{{ .own.repository | default $image.repository }}:{{ .own.tag | default $image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The label job of the metrics: rules and dashboard go by names that begin with carillon. */}}
{{- define "carillon.job" -}}
{{- $name := .Values.monitoring.job | default (include "carillon.fullname" .) -}}
{{- if hasPrefix "carillon" $name }}{{ $name }}{{ else }}carillon-{{ $name }}{{ end -}}
{{- end -}}

{{- define "carillon.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.runAsUser }}
runAsGroup: {{ .Values.runAsUser }}
fsGroup: {{ .Values.runAsUser }}
# Otherwise every start would open the files of the node, keys too, to the group, and take long for a large volume.
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "carillon.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* What a schema cannot say, with what to do. */}}
{{- define "carillon.check" -}}
{{- if and (not .Values.insecure) (not .Values.keys.existingSecret) -}}
{{- fail (printf "\n\nkeys.existingSecret is not set. A secure cluster begins with keys that all of its nodes have. Make them once, and keep them in a Secret:\n\n  carillon cluster init --out keys\n  kubectl create secret generic %s-keys --namespace %s --from-file=keys\n\nThen install the chart with --set keys.existingSecret=%s-keys, or without TLS and tokens, for a trial, with --set insecure=true.\n" (include "carillon.fullname" .) .Release.Namespace (include "carillon.fullname" .)) -}}
{{- end -}}
{{- if and .Values.insecure .Values.keys.existingSecret -}}
{{- fail "\n\ninsecure and keys.existingSecret exclude each other: an insecure cluster has no keys." -}}
{{- end -}}
{{- if and .Values.insecure .Values.tls.existingSecret -}}
{{- fail "\n\ninsecure and tls.existingSecret exclude each other: an insecure cluster does not speak TLS." -}}
{{- end -}}
{{- range .Values.extraArgs -}}
{{- if regexMatch "^--(node-id|data-dir|listen|advertise|cluster|bootstrap|join|secure|insecure|keys-from|token|token-file|tls-cert|tls-key|allowed-hosts)(=|$)" . -}}
{{- fail (printf "\n\nextraArgs: %s is set by the chart: use its values (replicas, insecure, keys, tls, allowedHosts)." .) -}}
{{- end -}}
{{- end -}}
{{- range .Values.worker.extraArgs -}}
{{- if regexMatch "^--(join|token|token-file|metrics-listen)(=|$)" . -}}
{{- fail (printf "\n\nworker.extraArgs: %s is set by the chart: use its values (worker.existingSecret, worker.metrics)." .) -}}
{{- end -}}
{{- end -}}
{{- if regexMatch "-(workers|jobs)$" .Values.monitoring.job -}}
{{- fail (printf "\n\nmonitoring.job: %s ends as the names of workers and single jobs do, which rules and dashboard tell from nodes by that: choose another." .Values.monitoring.job) -}}
{{- end -}}
{{- if and .Values.worker.enabled (not .Values.insecure) (not .Values.worker.existingSecret) -}}
{{- fail (printf "\n\nworker.existingSecret is not set. A worker of a secure cluster needs a token. Install the chart without workers first, then:\n\n  kubectl exec %s-0 --namespace %s -- /carillon --addr unix:/data/carillon/admin.sock token create workers --role worker -A > token\n  kubectl create secret generic %s-worker --namespace %s --from-file=token\n" (include "carillon.fullname" .) .Release.Namespace (include "carillon.fullname" .) .Release.Namespace) -}}
{{- end -}}
{{- if and .Values.monitoring.serviceMonitor.enabled (not .Values.insecure) (not .Values.monitoring.existingSecret) -}}
{{- fail (printf "\n\nmonitoring.existingSecret is not set. Prometheus needs a token and the CA of a secure cluster. Install the chart without a ServiceMonitor first, then:\n\n  kubectl exec %s-0 --namespace %s -- /carillon --addr unix:/data/carillon/admin.sock token create prometheus --role viewer > token\n  kubectl create secret generic %s-monitoring --namespace %s --from-file=token --from-file=keys/ca.pem\n" (include "carillon.fullname" .) .Release.Namespace (include "carillon.fullname" .) .Release.Namespace) -}}
{{- end -}}
{{- end -}}
