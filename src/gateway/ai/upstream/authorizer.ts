// Credentials of a request that are more than a key in a header: signatures and short-lived tokens.

/** The parts of a request that a signature covers. */
export interface AuthorizedRequest {
  url: string;
  method: string;
  body: string | Uint8Array | undefined;
  /** The provider's API key, if it has one. */
  apiKey: string | undefined;
}

/** Replaces the header of the API key. */
export interface Authorizer {
  /** The headers of one request. Rejects with a Problem when no token is available. */
  headers(request: AuthorizedRequest): Record<string, string> | Promise<Record<string, string>>;
  /**
   * Called when the provider has refused the headers, so that the next request gets a new token.
   */
  discard?(): void;
  /** The secrets to remove from the provider's error texts. */
  secrets(): (string | undefined)[];
}
