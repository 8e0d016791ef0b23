// The interface of the cities for other modules.
export { cities, type Cities } from './cities.ts';
export { citiesStore, type CitiesStore, type City, type Deployment } from './store.ts';
