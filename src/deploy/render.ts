// Renders a project for other process managers: a Dockerfile with its compose file, a Helm chart and
// a systemd unit. Tests check their syntax; `test/deploy/image.ts` builds and starts the image.
import { posix, relative } from 'node:path';
import { portOf, type Declaration } from './declaration.ts';
import { renderChart } from './render-chart.ts';

export interface RenderOptions {
  declaration: Declaration;
  /** The version of this installation. */
  version: string;
  /** The project's folder. */
  directory: string;
  /** The folder of the rendered files. */
  folder: string;
  /** The user that the unit runs as. */
  user: string;
  /** The command by which the unit calls `townhall`. */
  command: readonly string[];
}

const signature = 'Rendered by "townhall deploy --render"';
const notice = `${signature}. Its form is checked; it has not been run by Townhall's own tests.`;
// A gateway may take 30 seconds to stop.
const stopSeconds = 40;

// Excluded from the image: data, secrets, and output of the build. `data` only at the root, because
// a folder of sources may have this name, too.
const ignoredPatterns = [
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

// Patterns of a .dockerignore are relative to the root; `**/` matches any number of folders,
// including none.
function anywhere(pattern: string): string {
  return `**/${pattern}`;
}

/** Whether this command has rendered the file, so that it may be overwritten. */
export function isRendered(text: string): boolean {
  return text.includes(signature);
}

/** The texts of the files by their path. */
export function renderProject(options: RenderOptions): Record<string, string> {
  return {
    Dockerfile: dockerfile(options),
    // Docker prefers this file to a .dockerignore at the root.
    'Dockerfile.dockerignore': `# ${notice}\n${ignoredPatterns.join('\n')}\n`,
    'compose.yaml': compose(options),
    [`${options.declaration.name}.service`]: unit(options),
    ...Object.fromEntries(
      Object.entries(renderChart({ ...options, notice })).map(([path, text]) => [`chart/${path}`, text]),
    ),
  };
}

/** Volumes for the gateway's data, and for declared storage at the path that the project uses. */
function volumesOf({ deployment }: Declaration): { name: string; path: string }[] {
  const storage = { name: 'storage', path: '/city/.townhall/storage' };
  return [{ name: 'data', path: '/data' }, ...(deployment.resources.storage === undefined ? [] : [storage])];
}

function dockerfilePath({ directory, folder }: RenderOptions): string {
  return posix.join(relative(directory, folder), 'Dockerfile');
}

function dockerfile(options: RenderOptions): string {
  const { declaration, version } = options;
  const port = portOf(declaration);
  const volumes = volumesOf(declaration)
    .map(({ path }) => path)
    .join(' ');
  return `# ${notice}
# Build it from the project's folder: docker build -f ${dockerfilePath(options)} -t ${declaration.name.toLowerCase()} .
# A Debian image with Node and a user "node", such as a copy of this one in a registry of your own.
ARG BASE_IMAGE=node:24-bookworm-slim
FROM \${BASE_IMAGE}
# What npm installs: a version, or paths of tarballs that the build can read.
ARG TOWNHALL_PACKAGE=townhall@${version}
# For an agent in this image, which runs commands in a sandbox. Its container also needs user namespaces:
# --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined
RUN apt-get update && apt-get install --yes --no-install-recommends bubblewrap && rm -rf /var/lib/apt/lists/*
RUN npm install --global \${TOWNHALL_PACKAGE} && npm cache clean --force
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

function compose(options: RenderOptions): string {
  const { declaration, directory, folder } = options;
  const port = portOf(declaration);
  const database = postgresOf(declaration);
  const environment = composeEnvironment(declaration);
  const lines = [
    `# ${notice}`,
    'services:',
    '  city:',
    '    build:',
    `      context: ${quote(relative(folder, directory) || '.')}`,
    `      dockerfile: ${quote(dockerfilePath(options))}`,
    '    restart: unless-stopped',
    `    stop_grace_period: ${stopSeconds}s`,
    '    cap_drop: [ALL]',
    '    security_opt: ["no-new-privileges:true"]',
    '    ports:',
    `      - "${port}:${port}"`,
    ...(environment.length === 0 ? [] : ['    environment:', ...environment]),
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

function composeEnvironment(declaration: Declaration): string[] {
  const { baseUrl } = declaration.deployment;
  const database = postgresOf(declaration);
  const lines = baseUrl === undefined ? [] : [`      TOWNHALL_CITY_BASE_URL: ${quote(baseUrl)}`];
  if (database === undefined) return lines;
  const url = `postgres://townhall:\${POSTGRES_PASSWORD:?set it}@database:5432/${database.name}`;
  return [
    ...lines,
    `      DATABASE_URL: ${quote(url)}`,
    '      TOWNHALL_MASTER_KEY: "${TOWNHALL_MASTER_KEY:?set it to 32 bytes in base64}"',
  ];
}

/** The rest of the `city` service, which waits for the database, and the `database` service. */
function composeDatabase(name: string): string[] {
  return [
    '    depends_on:',
    '      database:',
    '        condition: service_healthy',
    '  database:',
    '    image: postgres:18',
    '    restart: unless-stopped',
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

// With sudo the rendering user is root; the unit must not run as root.
const serviceUser = 'townhall';

function unit({ declaration, directory, user, command }: RenderOptions): string {
  const run = [...command, 'city', 'run', '--project', directory].map(systemdWord).join(' ');
  const isRoot = user === 'root';
  const setup = isRoot
    ? `# Make its user once, give it the project, and deploy as that user from then on:
#   useradd --system --shell /usr/sbin/nologin ${serviceUser}
#   chown --recursive ${serviceUser}: ${directory}
#   runuser --user ${serviceUser} -- townhall deploy --project ${directory}
`
    : '';
  return `# ${notice}
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

/** The unit's sandbox, without MemoryDenyWriteExecute, because V8 compiles code at run time. */
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

/** A string in double quotes, in the common syntax of YAML and JSON. */
function quote(text: string): string {
  return JSON.stringify(text);
}

// Path settings of systemd take the rest of the line unquoted; percent signs start specifiers.
function systemdPath(path: string): string {
  return path.replaceAll('%', '%%');
}

function systemdWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word)
    ? word.replaceAll('%', '%%')
    : `"${word.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('%', '%%')}"`;
}
