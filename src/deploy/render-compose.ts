// Renders the compose files of a project: the gateway with its database, and an agent beside it.
import { relative } from 'node:path';
import { portOf, type Declaration } from './declaration.ts';
import {
  agentPort,
  defaultBaseImage,
  dockerfilePath,
  healthProgram,
  labelOf,
  notice,
  quote,
  stopSeconds,
  townhallPackage,
  volumesOf,
  type RenderOptions,
} from './render-options.ts';

const masterKey = 'TOWNHALL_MASTER_KEY';
const baseUrlSetting = 'TOWNHALL_CITY_BASE_URL';

// Optional settings that compose takes from the shell or from the file .env beside the compose file.
const optionalSettings = ['ADMIN_ID', 'ADMIN_PASSWORD', 'TRUSTED_PROXIES'];
const bucketSettings = ['BUCKET', 'ENDPOINT', 'REGION', 'PREFIX', 'KEY_ID', 'SECRET'].map(
  (name) => `STORAGE_S3_${name}`,
);

/** A read-only root file system, no capabilities, and no new privileges. */
const hardening = [
  '    restart: unless-stopped',
  `    stop_grace_period: ${stopSeconds}s`,
  '    read_only: true',
  '    tmpfs: [/tmp]',
  '    cap_drop: [ALL]',
  '    security_opt: ["no-new-privileges:true"]',
];

export function renderCompose(options: RenderOptions): string {
  const { declaration, directory, folder, version } = options;
  const port = portOf(declaration);
  const database = postgresOf(declaration);
  const lines = [
    `# ${notice}`,
    `# Start it in this folder: docker compose up --build --detach`,
    'services:',
    '  city:',
    `    image: "\${IMAGE:-${labelOf(declaration)}}"`,
    '    build:',
    `      context: ${quote(relative(folder, directory) || '.')}`,
    `      dockerfile: ${quote(dockerfilePath(options))}`,
    '      args:',
    `        BASE_IMAGE: "\${BASE_IMAGE:-${defaultBaseImage}}"`,
    `        TOWNHALL_PACKAGE: "\${TOWNHALL_PACKAGE:-${townhallPackage(version)}}"`,
    ...hardening,
    '    ports:',
    '      # For a proxy on this machine that terminates TLS. PUBLISH=0.0.0.0:8080 opens the port to the network.',
    `      - "\${PUBLISH:-127.0.0.1:${port}}:${port}"`,
    '    environment:',
    ...environmentOf(declaration).map(([name, value]) =>
      value === null ? `      ${name}:` : `      ${name}: ${quote(value)}`,
    ),
    '    volumes:',
    ...volumesOf(declaration).map(({ name, path }) => `      - ${name}:${path}`),
    ...(database === undefined ? [] : composeDatabase(database.name)),
    'volumes:',
    ...volumesOf(declaration).map(({ name }) => `  ${name}: {}`),
    ...(database === undefined ? [] : ['  database: {}']),
  ];
  return `${lines.join('\n')}\n`;
}

function postgresOf({ deployment }: Declaration): { name: string } | undefined {
  const { database } = deployment.resources;
  return database?.type === 'postgres' ? database : undefined;
}

/** Null: compose takes the value from the shell or `.env`, and leaves the setting out if neither has it. */
function environmentOf(declaration: Declaration): [name: string, value: string | null][] {
  const { baseUrl } = declaration.deployment;
  const database = postgresOf(declaration);
  const optional = [
    ...(database === undefined ? [masterKey] : []),
    ...optionalSettings,
    ...bucketSettings,
  ].map((name): [string, null] => [name, null]);
  return [
    [baseUrlSetting, baseUrl === undefined ? null : `\${${baseUrlSetting}:-${baseUrl}}`],
    ...(database === undefined ? [] : databaseEnvironment(database.name)),
    ...optional,
  ];
}

function databaseEnvironment(name: string): [name: string, value: string][] {
  return [
    ['DATABASE_URL', `postgres://townhall:\${POSTGRES_PASSWORD:?set it}@database:5432/${name}`],
    [masterKey, `\${${masterKey}:?set it to 32 bytes in base64}`],
  ];
}

/** The rest of the `city` service, which waits for the database, and the `database` service. */
function composeDatabase(name: string): string[] {
  return [
    '    depends_on:',
    '      database:',
    '        condition: service_healthy',
    '  database:',
    '    image: "${POSTGRES_IMAGE:-postgres:18}"',
    '    restart: unless-stopped',
    '    security_opt: ["no-new-privileges:true"]',
    '    environment:',
    '      POSTGRES_USER: townhall',
    '      POSTGRES_PASSWORD: "${POSTGRES_PASSWORD:?set it}"',
    `      POSTGRES_DB: ${quote(name)}`,
    '    healthcheck:',
    `      test: ["CMD", "pg_isready", "--username", "townhall", "--dbname", ${quote(name)}]`,
    '      interval: 5s',
    '      timeout: 5s',
    '      retries: 12',
    '    volumes:',
    '      - database:/var/lib/postgresql',
  ];
}

export function renderComposeOfAgent({ declaration }: RenderOptions): string {
  const health = `node -e "${healthProgram(`'http://127.0.0.1:${agentPort}/health'`)}"`;
  return `# ${notice}
# An agent beside the gateway: docker compose -f compose.yaml -f compose.agent.yaml up --build --detach
# AGENT_GATEWAY_TOKEN is a user token of the gateway. The agent's own token:
#   docker compose -f compose.yaml -f compose.agent.yaml exec agent cat /data/agent.token
services:
  agent:
    image: "\${IMAGE:-${labelOf(declaration)}}"
    command: ["townhall", "agent"]
    depends_on: [city]
${hardening.join('\n')}
    # The sandbox of the agent's commands needs user namespaces, which container engines forbid; without a sandbox no
    # command runs. The sandbox works with these options instead of the line above:
    # security_opt: ["no-new-privileges:true", "seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined"]
    ports:
      - "\${AGENT_PUBLISH:-127.0.0.1:${agentPort}}:${agentPort}"
    environment:
      AGENT_HOST: 0.0.0.0
      AGENT_ALLOW_HOST: "agent:${agentPort},\${AGENT_ALLOW_HOST:-localhost:${agentPort}}"
      AGENT_DATA_DIR: /data
      AGENT_GATEWAY_URL: http://city:${portOf(declaration)}
      AGENT_GATEWAY_TOKEN: "\${AGENT_GATEWAY_TOKEN:?set it to a user token of the gateway}"
      AGENT_MODEL: "\${AGENT_MODEL:-local/guide}"
${bucketSettings.map((name) => `      AGENT_${name}:`).join('\n')}
    healthcheck:
      test: ["CMD-SHELL", ${quote(health)}]
      interval: 10s
      timeout: 6s
      start_period: 30s
    volumes:
      - agent:/data
volumes:
  agent: {}
`;
}
