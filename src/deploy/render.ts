// A project in the forms that other operators of processes read: a Dockerfile with its compose file, and a systemd unit.
// They are checked for their form alone; what runs them is not part of Townhall.
import { posix, relative } from 'node:path';
import type { Declaration } from './declaration.ts';

export interface RenderFacts {
  declaration: Declaration;
  /** Of this installation. */
  version: string;
  /** The project's folder. */
  directory: string;
  /** Where the files will be. */
  folder: string;
  /** The user whom a unit runs as. */
  user: string;
  /** How the command is called from a unit. */
  command: readonly string[];
}

const mark = 'Rendered by "townhall deploy --render". Its form is checked; it has not been run by Townhall\'s own tests.';
const defaultPort = 43_127;
// More than the 30 seconds that a gateway may take to stop.
const stopSeconds = 40;

/** The files by their names. */
export function renderProject(facts: RenderFacts): Record<string, string> {
  return {
    Dockerfile: dockerfile(facts),
    // Read in place of one at the root of the project, which belongs to its author.
    'Dockerfile.dockerignore': `# ${mark}\n.git\n.townhall\nnode_modules\n`,
    'compose.yaml': compose(facts),
    [`${facts.declaration.name}.service`]: unit(facts),
  };
}

function portOf({ deployment }: Declaration): number {
  return deployment.port === undefined || deployment.port === 0 ? defaultPort : deployment.port;
}

/** What outlives the container: the gateway's own data, and the storage that the project declares, where it looks for it. */
function volumesOf({ deployment }: Declaration): { name: string; path: string }[] {
  const storage = { name: 'storage', path: '/city/.townhall/storage' };
  return [{ name: 'data', path: '/data' }, ...(deployment.resources.storage === undefined ? [] : [storage])];
}

function dockerfilePath({ directory, folder }: RenderFacts): string {
  return posix.join(relative(directory, folder), 'Dockerfile');
}

function dockerfile(facts: RenderFacts): string {
  const { declaration, version } = facts;
  const port = portOf(declaration);
  const volumes = volumesOf(declaration).map(({ path }) => path).join(' ');
  return `# ${mark}
# Build it from the project's folder: docker build -f ${dockerfilePath(facts)} -t ${declaration.name.toLowerCase()} .
FROM node:24-bookworm-slim
RUN npm install --global townhall@${version} && npm cache clean --force
WORKDIR /city
COPY --chown=node:node . /city
RUN if [ -f package-lock.json ]; then npm ci --omit=dev; else npm install --omit=dev; fi && npm cache clean --force
RUN mkdir -p ${volumes} && chown node:node ${volumes}
USER node
ENV HOST=0.0.0.0 PORT=${port} DATABASE_PATH=/data/townhall.db STORAGE_PATH=/data/media JOURNAL_PATH=/data/journal
EXPOSE ${port}
VOLUME ${volumes}
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s CMD ["node", "-e", "fetch('http://127.0.0.1:${port}/ready').then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))"]
CMD ["townhall", "gateway", "--project", "/city"]
`;
}

function compose(facts: RenderFacts): string {
  const { declaration, directory, folder } = facts;
  const port = portOf(declaration);
  const database = declaration.deployment.resources.database;
  const { baseUrl } = declaration.deployment;
  const environment = [
    ...(baseUrl === undefined ? [] : [`      TOWNHALL_CITY_BASE_URL: ${quoted(baseUrl)}`]),
    ...(database?.type === 'postgres'
      ? [`      DATABASE_URL: ${quoted(`postgres://townhall:\${POSTGRES_PASSWORD:?set it}@database:5432/${database.name}`)}`, '      TOWNHALL_MASTER_KEY: "${TOWNHALL_MASTER_KEY:?set it to 32 bytes in base64}"']
      : []),
  ];
  const lines = [
    `# ${mark}`,
    'services:',
    '  city:',
    '    build:',
    `      context: ${quoted(relative(folder, directory) || '.')}`,
    `      dockerfile: ${quoted(dockerfilePath(facts))}`,
    '    restart: unless-stopped',
    `    stop_grace_period: ${stopSeconds}s`,
    '    ports:',
    `      - "${port}:${port}"`,
    ...(environment.length === 0 ? [] : ['    environment:', ...environment]),
    '    volumes:',
    ...volumesOf(declaration).map(({ name, path }) => `      - ${name}:${path}`),
    ...(database?.type === 'postgres'
      ? [
          '    depends_on:',
          '      database:',
          '        condition: service_healthy',
          '  database:',
          '    image: postgres:18',
          '    restart: unless-stopped',
          '    environment:',
          '      POSTGRES_USER: townhall',
          '      POSTGRES_PASSWORD: "${POSTGRES_PASSWORD:?set it}"',
          `      POSTGRES_DB: ${quoted(database.name)}`,
          '    healthcheck:',
          `      test: ["CMD", "pg_isready", "--username", "townhall", "--dbname", ${quoted(database.name)}]`,
          '      interval: 5s',
          '      timeout: 5s',
          '      retries: 12',
          '    volumes:',
          '      - database:/var/lib/postgresql',
        ]
      : []),
    'volumes:',
    ...volumesOf(declaration).map(({ name }) => `  ${name}: {}`),
    ...(database?.type === 'postgres' ? ['  database: {}'] : []),
  ];
  return `${lines.join('\n')}\n`;
}

function unit({ declaration, directory, user, command }: RenderFacts): string {
  const run = [...command, 'city', 'run', '--project', directory].map(systemdWord).join(' ');
  return `# ${mark}
# It serves the version that was deployed last, also after a reboot; "townhall deploy" finds it running and hands over.
# Secrets belong into the environment file, for its owner alone: TOWNHALL_MASTER_KEY=…, DATABASE_URL=…
[Unit]
Description=Townhall City ${declaration.name}
After=network-online.target
Wants=network-online.target

[Service]
Type=simple
User=${user}
WorkingDirectory=${directory}
EnvironmentFile=-${directory}/.townhall/environment
ExecStart=${run}
Restart=on-failure
RestartSec=2
KillMode=mixed
TimeoutStopSec=${stopSeconds}
UMask=0077
NoNewPrivileges=true
PrivateTmp=true

[Install]
WantedBy=multi-user.target
`;
}

/** A text in double quotes, as YAML and JSON both write it. */
function quoted(text: string): string {
  return JSON.stringify(text);
}

function systemdWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word.replaceAll('%', '%%') : `"${word.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('%', '%%')}"`;
}
