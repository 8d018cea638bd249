"""Which GDAL drivers a process that opens uploads goes without. Imports nothing, so that any process may read it."""

from typing import Final

UNUSED_DRIVERS: Final = (
    "VRT,DERIVED,MRF,WMS,WMTS,WCS,GTI,STACIT,STACTA,HTTP,PLMOSAIC,EEDA,EEDAI,DAAS,ISIS2,ISIS3,PDS,PDS4,HDF5,HDF5Image,"
    "netCDF,Zarr,NITF,RPFTOC,ECRGTOC,TIL,SAFE,SENTINEL2,PDF,MBTiles,Rasterlite,GPKG,KMLSUPEROVERLAY,RRASTER,ENVI,PNM,"
    "ESRI Shapefile,GeoJSON,GeoJSONSeq,ESRIJSON,TopoJSON,OSM,MVT,SQLite,GNMFile,GNMDatabase,ESRIC,AVCE00,AVCBin"
)
"""Value of GDAL_SKIP: drivers whose files may name other files or addresses. Every open names its driver as well."""
