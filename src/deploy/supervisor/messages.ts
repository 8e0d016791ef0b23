// What the supervisor and the gateway that it started say to each other over their channel. Questions carry a number,
// and each is answered once.

/** The listening socket is the fifth of the files that a gateway is started with, behind the channel. */
export const listeningFd = 4;

export interface StartRequest {
  /** The folder of the version to serve. */
  project: string;
  /** Where declared storages are. */
  stateDirectory: string;
  /** A socket in the file system at which the gateway answers before it has the listening one. */
  socket: string;
  /** Under which it will be known on this machine. */
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
