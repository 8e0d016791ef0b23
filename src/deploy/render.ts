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

const mark =
  'Rendered by "townhall deploy --render". Its form is checked; it has not been run by Townhall\'s own tests.';
const defaultPort = 43_127;
// More than the 30 seconds that a gateway may take to stop.
const stopSeconds = 40;

// What must not get into an image: data, secrets, and what the build makes anew. `data` at the root alone, since a folder
// of sources may have that name.
const ignored = [
  'data',
  ...[
    '.git',
    '.townhall',
    'node_modules',
    '.env*',
    '.npmrc',
    '.netrc',
    '.pgpass',
    '.ssh',
    '.aws',
    '.gnupg',
  ].map(anywhere),
  ...[
    '*.key',
    '*.pem',
    '*.p12',
    '*.pfx',
    '*.jks',
    'id_rsa*',
    'id_ecdsa*',
    'id_ed25519*',
    '*.token',
    'credentials*.json',
    'service-account*.json',
  ].map(anywhere),
  ...['*.db', '*.db-*', '*.sqlite*', '*.backup', '*.dump', '*.log'].map(anywhere),
];

// In an ignore file of Docker a pattern is of the root unless it says otherwise; `**/` stands for no folder too.
function anywhere(pattern: string): string {
  return `**/${pattern}`;
}

/** Whether the text of a file was rendered by this command, so that it may be overwritten. */
export function isRendered(text: string): boolean {
  return text.includes('Rendered by "townhall deploy --render"');
}

/** The files by their names. */
export function renderProject(facts: RenderFacts): Record<string, string> {
  return {
    Dockerfile: dockerfile(facts),
    // Read in place of one at the root of the project, which belongs to its author.
    'Dockerfile.dockerignore': `# ${mark}\n${ignored.join('\n')}\n`,
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
  const volumes = volumesOf(declaration)
    .map(({ path }) => path)
    .join(' ');
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
# Behind a published port every caller comes from the address of the engine, which the local login would trust.
ENV LOCAL_LOGIN=false
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
      ? [
          `      DATABASE_URL: ${quoted(`postgres://townhall:\${POSTGRES_PASSWORD:?set it}@database:5432/${database.name}`)}`,
          '      TOWNHALL_MASTER_KEY: "${TOWNHALL_MASTER_KEY:?set it to 32 bytes in base64}"',
        ]
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

// A system-wide unit must not run as root, which is who renders it with sudo.
const serviceUser = 'townhall';

function unit({ declaration, directory, user, command }: RenderFacts): string {
  const run = [...command, 'city', 'run', '--project', directory].map(systemdWord).join(' ');
  const isRoot = user === 'root';
  const setup = isRoot
    ? `# Make its user once, give it the project, and deploy as that user from then on:
#   useradd --system --shell /usr/sbin/nologin ${serviceUser}
#   chown --recursive ${serviceUser}: ${directory}
#   runuser --user ${serviceUser} -- townhall deploy --project ${directory}
`
    : '';
  return `# ${mark}
# It serves the version that was deployed last, also after a reboot; "townhall deploy" finds it running and hands over.
# Secrets belong into the environment file, for its owner alone: TOWNHALL_MASTER_KEY=…, DATABASE_URL=…
${setup}[Unit]
Description=Townhall City ${declaration.name}
After=network-online.target
Wants=network-online.target

[Service]
Type=simple
User=${isRoot ? serviceUser : user}
WorkingDirectory=${systemdPath(directory)}
EnvironmentFile=-${systemdPath(posix.join(directory, '.townhall/environment'))}
ExecStart=${run}
Restart=on-failure
RestartSec=2
KillMode=mixed
TimeoutStopSec=${stopSeconds}
UMask=0077
${hardening(declaration, directory).join('\n')}

[Install]
WantedBy=multi-user.target
`;
}

/** What the processes of the unit may not do. They compile code while they run, so memory stays writable and executable. */
function hardening(declaration: Declaration, directory: string): string[] {
  const capability = portOf(declaration) < 1024 ? 'CAP_NET_BIND_SERVICE' : '';
  return [
    'NoNewPrivileges=true',
    `CapabilityBoundingSet=${capability}`,
    `AmbientCapabilities=${capability}`,
    'ProtectSystem=strict',
    'ProtectHome=read-only',
    `ReadWritePaths=${systemdWord(posix.join(directory, '.townhall'))}`,
    'PrivateTmp=true',
    'PrivateDevices=true',
    'ProtectProc=invisible',
    'ProtectClock=true',
    'ProtectHostname=true',
    'ProtectKernelTunables=true',
    'ProtectKernelModules=true',
    'ProtectKernelLogs=true',
    'ProtectControlGroups=true',
    'RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK',
    'RestrictNamespaces=true',
    'RestrictRealtime=true',
    'RestrictSUIDSGID=true',
    'LockPersonality=true',
    'SystemCallArchitectures=native',
  ];
}

/** A text in double quotes, as YAML and JSON both write it. */
function quoted(text: string): string {
  return JSON.stringify(text);
}

// A setting that takes the rest of the line as one path knows no quotes; percent signs begin specifiers.
function systemdPath(path: string): string {
  return path.replaceAll('%', '%%');
}

function systemdWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word)
    ? word.replaceAll('%', '%%')
    : `"${word.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('%', '%%')}"`;
}
