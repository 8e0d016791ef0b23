// The messages between the supervisor and a gateway that it started, over their IPC channel. Each message has an id and is
// answered once.

/** The listening socket's file descriptor in the gateway: stdin, stdout, stderr and the IPC channel come before it. */
export const listeningFd = 4;

export interface StartRequest {
  /** The folder of the version to serve. */
  project: string;
  /** The City's folder, which contains the declared storages. */
  stateDirectory: string;
  /** A Unix socket at which the gateway answers health checks before it accepts callers. */
  socket: string;
  /** The address under which callers on this machine will reach it. */
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
