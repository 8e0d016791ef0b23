// Renders the Helm chart of a project: `Chart.yaml` and `values.yaml` from its declaration, and unchanged
// copies of the templates. The chart runs the image of the rendered Dockerfile.
import { assetPath, readTextSync } from '../kernel/assets.ts';
import { portOf, type Declaration } from './declaration.ts';
import { labelOf, quote, signature, type RenderOptions } from './render-options.ts';

const folder = 'src/deploy/chart';
const notice = `${signature}. Helm has checked it; the tests have no cluster to run it on.`;
const templates = [
  '_names.tpl',
  '_pod.tpl',
  'agent-disruption-budget.yaml',
  'agent-network-policy.yaml',
  'agent-secret.yaml',
  'agent-service.yaml',
  'agent-statefulset.yaml',
  'disruption-budget.yaml',
  'ingress.yaml',
  'secret.yaml',
  'service.yaml',
  'statefulset.yaml',
];

/** The texts of the files by their path in the chart. */
export function renderChart({
  declaration,
  version,
}: Pick<RenderOptions, 'declaration' | 'version'>): Record<string, string> {
  const names = ['values.schema.json', ...templates.map((name) => `templates/${name}`)];
  return {
    'Chart.yaml': chart(declaration, version),
    'values.yaml': values(declaration),
    ...Object.fromEntries(names.map((name) => [name, readTextSync(assetPath(`${folder}/${name}`))])),
  };
}

function chart(declaration: Declaration, version: string): string {
  return `# ${notice}
apiVersion: v2
name: ${quote(labelOf(declaration))}
description: The City ${quote(declaration.name).slice(1, -1)}
type: application
version: 0.1.0
appVersion: ${quote(version)}
`;
}

/** Everything but `agent` configures the gateway. */
function values(declaration: Declaration): string {
  const { baseUrl, resources } = declaration.deployment;
  const host = baseUrl === undefined ? '' : new URL(baseUrl).hostname;
  return `# ${notice}
# The image of the rendered Dockerfile, in a registry that the cluster reads.
image:
  repository: ${quote(labelOf(declaration))}
  tag: latest
  pullPolicy: IfNotPresent
  pullSecrets: []
# More than one needs PostgreSQL, and bucket.name or sharedClaim.
replicas: 1
port: ${portOf(declaration)}
# The address under which users reach the gateway.
baseUrl: ${quote(baseUrl ?? '')}
# Networks of the ingress, whose X-Forwarded-For is trusted: 10.0.0.0/8
trustedProxies: ""
# Further settings of the gateway, such as LOG_LEVEL: warn
env: {}
# Settings that are secrets: DATABASE_URL, TOWNHALL_MASTER_KEY, ADMIN_ID, ADMIN_PASSWORD, STORAGE_S3_KEY_ID,
# STORAGE_S3_SECRET, the keys of providers. Pass them with --set-file or a values file that is not in git.
secrets: {}
# A Secret with these settings instead, such as one of an operator for secrets.
existingSecret: ""
# A bucket for images and videos.
bucket:
  name: ""
  endpoint: ""
  region: ""
  prefix: ""
# The volume of each pod: the journal of charges, and the embedded database where DATABASE_URL is absent.
data:
  size: 8Gi
  storageClass: ""
# A claim that all pods may mount and write (ReadWriteMany), for images and videos without a bucket.
sharedClaim: ""
projectStorage: ${resources.storage !== undefined}
resources:
  requests:
    cpu: 250m
    memory: 512Mi
  limits:
    memory: 2Gi
nodeSelector: {}
service:
  port: 80
ingress:
  enabled: false
  host: ${quote(host)}
  className: ""
  tlsSecret: ""
  # Answers stream, so a proxy must not buffer them.
  annotations: {}
${agentValues}`;
}

const agentValues = `# An agent of the same image, which only the pods of its namespace can call.
agent:
  enabled: false
  # More than one needs PostgreSQL and sharedClaim.
  replicas: 1
  model: local/guide
  # Further Host headers that it accepts, such as agent.example.com
  allowHosts: []
  # Further settings of the agent, such as AGENT_MAX_RUNS: "16"
  env: {}
  # AGENT_GATEWAY_TOKEN, a user token of the gateway; AGENT_DATABASE_URL, AGENT_STORAGE_S3_KEY_ID, AGENT_STORAGE_S3_SECRET.
  secrets: {}
  existingSecret: ""
  # A bucket for attachments.
  bucket:
    name: ""
    endpoint: ""
    region: ""
    prefix: ""
  # The volume of each pod: workspace, token file and, without PostgreSQL, the sessions.
  data:
    size: 8Gi
    storageClass: ""
  # A claim that all pods of the agent may mount and write, in place of that volume.
  sharedClaim: ""
  # true lets the pod make the namespaces that commands, MCP servers and services run in. It needs Kubernetes 1.33
  # with user namespaces, and a namespace with the Pod Security Standard "privileged".
  sandbox: false
  resources:
    requests:
      cpu: 250m
      memory: 512Mi
    limits:
      memory: 2Gi
  networkPolicy:
    enabled: true
    # Peers that may call it; the pods of its namespace when empty.
    from: []
    # Egress rules, such as the addresses of your gateway; all is allowed when empty.
    egress: []
`;
