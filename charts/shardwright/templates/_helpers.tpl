{{- define "shardwright.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "shardwright.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "shardwright.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "shardwright.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* The operator finds its children by app.kubernetes.io/managed-by=shardwright; these labels must not say so. */}}
{{- define "shardwright.selectorLabels" -}}
app.kubernetes.io/name: {{ include "shardwright.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "shardwright.labels" -}}
{{ include "shardwright.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "shardwright.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "shardwright.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "shardwright.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- /* Cluster-scoped objects of two releases in different namespaces must not meet. */}}
{{- define "shardwright.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "shardwright.fullname" .) }}
{{- end }}

{{- /* Exactly what the operator's requests need. A right that is not used is a defect; the tests compare. */}}
{{- define "shardwright.rules" -}}
# Server-side apply is a patch, and a create when the object does not exist.
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch, create, patch, delete]
# Written once.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [list, watch, create, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list, watch, create, delete]
- apiGroups: [apps]
  resources: [statefulsets, controllerrevisions]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [shardwright.dev]
  resources: [modeldeployments]
  verbs: [list, watch]
- apiGroups: [shardwright.dev]
  resources: [modeldeployments/status]
  verbs: [patch]
# Never requested, but asked for by the OwnerReferencesPermissionEnforcement admission plugin: children name their
# owner with blockOwnerDeletion.
- apiGroups: [shardwright.dev]
  resources: [modeldeployments/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- if (.Values.gang).kubernetes }}
- apiGroups: [scheduling.k8s.io]
  resources: [podgroups]
  verbs: [list, watch, create, patch, delete]
{{- end }}
{{- if (.Values.gang).volcano }}
- apiGroups: [scheduling.volcano.sh]
  resources: [podgroups]
  verbs: [list, watch, create, patch, delete]
{{- end }}
{{- if (.Values.gang).kueue }}
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [list, watch, create, patch, delete]
{{- end }}
{{- end }}

{{- /* The gang schedulers that are switched on, as the operator's flag names them. */}}
{{- define "shardwright.gangs" -}}
{{- $gangs := list }}
{{- range $name, $enabled := .Values.gang }}
{{- if $enabled }}
{{- $gangs = append $gangs (title $name) }}
{{- end }}
{{- end }}
{{- join "," $gangs }}
{{- end }}
