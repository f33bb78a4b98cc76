//! Making and dropping partitions, and the slots that are free (design §3).

use std::collections::HashSet;
use std::sync::Arc;

use super::Core;
use crate::catalog::partitions::name_of;
use crate::catalog::{TableInfo, TableKind};
use crate::error::{Error, ErrorKind, Result};
use crate::row::key::Place;
use crate::tablet::Tablet;
use crate::types::{BucketId, TableId};

impl Core {
    /// Has a stand-in for each free slot of a table, and none for the others.
    pub(super) fn show_vacant(&self, info: &TableInfo) {
        let Some(partitions) = &info.partitions else { return };
        let (options, epoch) = (self.options_of(info), self.catalog.leader_epoch(info));
        let mut vacant = self.vacant.write();
        for (number, slot) in partitions.slots().iter().enumerate() {
            let id = BucketId::vacant(info.table_id(), number as u32);
            if slot.tenant.is_some() {
                if let Some(taken) = vacant.remove(&id) {
                    taken.take_offline(&Error::new(ErrorKind::NotReady, "the topic partition has a new bucket"));
                }
            } else {
                vacant.entry(id).or_insert_with(|| {
                    let epoch = epoch + slot.generation as i32;
                    let history = (slot.base, slot.epochs.clone());
                    let (around, options) = (self.around.clone(), Arc::clone(&options));
                    Arc::new(Tablet::vacant(around, id, info.shape(), options, epoch, history))
                });
            }
        }
    }

    /// Adds a partition. Files that a crash leaves of one that is not in the catalog are removed at the next start, or
    /// here.
    pub(super) fn add_partition(&self, id: TableId, spec: &[(String, String)]) -> Result<()> {
        let _one = self.partitioning.lock();
        let before = self.info(id)?;
        let values = before.partition_values(spec)?;
        let mut planned = before.partitions.clone().unwrap_or_default();
        let partition = planned.add(values, before.buckets, self.around.clock.now_ms())?.clone();
        self.remove_files(&self.table_directory(id).join(partition.id.to_string()));
        let mut info = before.as_ref().clone();
        for slot in planned.slots() {
            if let Some((tenant, bucket)) = slot.tenant.filter(|(tenant, _)| *tenant == partition.id) {
                let place = Place { partition: Some(tenant), bucket };
                Tablet::found(&self.around, place.of(id), slot.base, slot.epochs.clone())?;
            }
        }
        info.partitions = Some(planned);
        let stored = self.create_tablets(&info, |bucket| bucket.partition == Some(partition.id)).and_then(|()| {
            self.catalog.alter(id, |stored| {
                stored.partitions = info.partitions;
                Ok(())
            })
        });
        match stored {
            Ok(info) => self.show_vacant(&info),
            Err(error) => {
                self.remove_tablets(id, partition.id, &error);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Drops a partition: where its logs ended is durable before they go (design §3).
    pub(super) fn drop_partition(&self, id: TableId, spec: &[(String, String)]) -> Result<()> {
        let _one = self.partitioning.lock();
        let before = self.info(id)?;
        let name = name_of(&before.partition_values(spec)?);
        let gone = Error::new(ErrorKind::PartitionNotFound, format!("partition '{name}' was dropped"));
        let found = before.partitions.as_ref().and_then(|partitions| partitions.get(&name)).cloned();
        if let Some(partition) = &found {
            // Nothing may be appended behind the end that is written down.
            for bucket in before.bucket_ids().into_iter().filter(|bucket| bucket.partition == Some(partition.id)) {
                self.tablet(bucket)?.take_offline(&gone);
            }
        }
        let mut removed = None;
        let info = self.catalog.alter(id, |info| {
            let end = |place: Place| {
                let tablet = self.tablet(place.of(id))?;
                Ok((tablet.end_offset(), tablet.epochs()))
            };
            removed = info.partitions.as_mut().map(|partitions| partitions.remove(&name, end)).transpose()?;
            Ok(())
        })?;
        let Some(partition) = removed else { return Err(gone) };
        self.show_vacant(&info);
        self.remove_tablets(id, partition.id, &gone);
        if before.kind == TableKind::Pk {
            let buckets = (0..partition.buckets).map(|bucket| Place { partition: Some(partition.id), bucket }.of(id));
            self.kv.drop_buckets(&before, &buckets.collect::<Vec<_>>())?;
        }
        Ok(())
    }

    fn remove_tablets(&self, id: TableId, partition: i64, why: &Error) {
        let removed: Vec<_> = {
            let mut tablets = self.tablets.write();
            let ids: Vec<_> = tablets.keys().copied().collect();
            let of_it = ids.into_iter().filter(|bucket| bucket.table == id && bucket.partition == Some(partition));
            of_it.filter_map(|bucket| tablets.remove(&bucket)).collect()
        };
        removed.iter().for_each(|tablet| tablet.take_offline(why));
        self.remove_files(&self.table_directory(id).join(partition.to_string()));
    }

    /// Directories of partitions that are not in the catalog.
    pub(super) fn remove_leftover_partitions(&self, info: &TableInfo) {
        let known: HashSet<_> =
            info.bucket_ids().iter().filter_map(|bucket| bucket.partition).map(|id| id.to_string()).collect();
        let directory = self.table_directory(info.table_id());
        for entry in self.around.disk.list(&directory).unwrap_or_default() {
            if entry.is_dir && !known.contains(&entry.name) {
                tracing::info!(table = info.name, directory = entry.name, "removing the files of a dropped partition");
                self.remove_files(&directory.join(&entry.name));
            }
        }
    }
}
