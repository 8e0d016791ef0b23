// Credentials that are computed for each request, unlike a key in a header: signatures and
// short-lived tokens.

/** The parts of a request that a signature covers. */
export interface AuthorizedRequest {
  url: string;
  method: string;
  body: string | Uint8Array | undefined;
  /** The provider's API key, if it has one. */
  apiKey: string | undefined;
}

/** Creates the headers that take the place of the API key's header. */
export interface Authorizer {
  /** The headers of one request. Rejects with a Problem when no token is available. */
  headers(request: AuthorizedRequest): Record<string, string> | Promise<Record<string, string>>;
  /** Called when the provider has refused the headers, so that a new token is fetched next time. */
  discard?(): void;
  /** The secrets to remove from the provider's error texts. */
  secrets(): (string | undefined)[];
}
