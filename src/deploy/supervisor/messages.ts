// The messages between the supervisor and its gateways over their IPC channels. Each message has an
// id and is answered once.

/**
 * The listening socket's file descriptor in the gateway: 0 to 2 are stdin to stderr, 3 is the IPC channel.
 */
export const listeningFd = 4;

export interface StartRequest {
  /** The folder of the version to serve. */
  project: string;
  /** The City's folder `.townhall`, which contains the declared storage. */
  stateDirectory: string;
  /** A Unix socket for health checks before the gateway accepts connections. */
  socket: string;
  /** The address under which callers on this machine will reach the gateway. */
  url: string;
}

export interface CityRecord {
  cityId: string;
  name: string;
  baseUrl: string;
  target: 'local';
  version: string;
  status: 'live' | 'retired';
}

export type GatewayRequest =
  | { kind: 'start'; input: StartRequest }
  | { kind: 'adopt'; input: { url: string } }
  | { kind: 'record'; input: CityRecord }
  | { kind: 'leave'; input: { lingerMs: number } };

export type GatewayMessage = GatewayRequest & { id: number };
export type GatewayReply = { id: number; ok: true } | { id: number; ok: false; message: string };
