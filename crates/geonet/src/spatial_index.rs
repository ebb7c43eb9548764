//! Spatial index of the neighbours: a quadtree over latitude and longitude, which finds the neighbour nearest
//! to a point without visiting all.
//!
//! The tree uses the integer coordinates of the wire, so it needs no origin and does not change when the
//! station moves. A query passes its own [`DistanceMetric`]. Leaves have up to twelve items in linked lists
//! through one array. Nodes are in blocks of four, which the tree reuses. Between two beacons nearly all
//! positions stay in their leaves; their update costs one comparison. The depth is limited to cells of some
//! 11 m: many stations at the same position make a long list, but not a deep tree.

use crate::geodesy::{DistanceMetric, FULL_TURN_UNITS, Position};

/// Largest number of items in a leaf; the tree splits a leaf with more items.
const MAX_LEAF_ITEMS: u32 = 12;
/// Largest depth: a cell has 1024 units, some 11 m.
const MAX_DEPTH: u8 = 22;
const NO_ITEM: u32 = u32::MAX;
const ROOT_NODE: u32 = 0;

#[derive(Debug, Clone, Copy)]
struct TreeNode {
    /// Index of the first of four children; [`NO_ITEM`] in a leaf.
    first_child: u32,
    parent: u32,
    /// Number of items in the subtree below this node.
    item_count: u32,
    /// First item of a leaf.
    first_item: u32,
    /// South-western corner of the node's square, in coordinates that are shifted so that none is negative.
    x: u32,
    y: u32,
    depth: u8,
}

#[derive(Debug, Clone, Copy)]
struct Item {
    x: u32,
    y: u32,
    leaf: u32,
    next_in_leaf: u32,
    previous_in_leaf: u32,
}

const ABSENT_ITEM: Item =
    Item { x: 0, y: 0, leaf: NO_ITEM, next_in_leaf: NO_ITEM, previous_in_leaf: NO_ITEM };

/// Spatial index of items with positions; the caller numbers the items with small integers.
#[derive(Debug)]
pub struct SpatialIndex {
    nodes: Vec<TreeNode>,
    free_node_blocks: Vec<u32>,
    items: Vec<Item>,
}

fn to_unsigned(value: i32) -> u32 {
    (value as u32) ^ 0x8000_0000
}

fn to_signed(value: u32) -> i32 {
    (value ^ 0x8000_0000) as i32
}

impl TreeNode {
    fn side_length(&self) -> u64 {
        1 << (32 - u32::from(self.depth))
    }

    fn contains_point(&self, x: u32, y: u32) -> bool {
        let shift = 32 - u32::from(self.depth);
        u64::from(x ^ self.x) >> shift == 0 && u64::from(y ^ self.y) >> shift == 0
    }
}

impl Default for SpatialIndex {
    fn default() -> Self {
        let root = TreeNode {
            first_child: NO_ITEM,
            parent: NO_ITEM,
            item_count: 0,
            first_item: NO_ITEM,
            x: 0,
            y: 0,
            depth: 0,
        };
        SpatialIndex { nodes: vec![root], free_node_blocks: Vec::new(), items: Vec::new() }
    }
}

impl SpatialIndex {
    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.nodes[ROOT_NODE as usize].item_count as usize
    }

    /// Returns whether the index is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Upper limit of the octets per item: its own record and its share of the nodes.
    pub const ITEM_OCTETS: usize =
        size_of::<Item>() + 4 * size_of::<TreeNode>() / (MAX_LEAF_ITEMS as usize / 2);

    /// Sets the position of `item`, and adds the item if it is not in the index.
    pub fn set_position(&mut self, item: u32, position: Position) {
        let (x, y) = (to_unsigned(position.longitude), to_unsigned(position.latitude));
        if self.items.len() <= item as usize {
            self.items.resize(item as usize + 1, ABSENT_ITEM);
        }
        let known = &mut self.items[item as usize];
        if known.leaf != NO_ITEM {
            if self.nodes[known.leaf as usize].contains_point(x, y) {
                (known.x, known.y) = (x, y);
                return;
            }
            self.remove(item);
        }
        let known = &mut self.items[item as usize];
        (known.x, known.y) = (x, y);
        let mut at = ROOT_NODE;
        loop {
            let node = &mut self.nodes[at as usize];
            node.item_count += 1;
            if node.first_child == NO_ITEM {
                break;
            }
            at = Self::child_containing(node, x, y);
        }
        self.link_item(item, at);
        self.split_leaf(at);
    }

    /// Removes `item` if it is in the index.
    pub fn remove(&mut self, item: u32) {
        let Some(Item { leaf, next_in_leaf: next, previous_in_leaf: previous, .. }) =
            self.items.get(item as usize).copied()
        else {
            return;
        };
        if leaf == NO_ITEM {
            return;
        }
        match previous {
            NO_ITEM => self.nodes[leaf as usize].first_item = next,
            previous => self.items[previous as usize].next_in_leaf = next,
        }
        if next != NO_ITEM {
            self.items[next as usize].previous_in_leaf = previous;
        }
        self.items[item as usize] = ABSENT_ITEM;
        let (mut at, mut sparse) = (leaf, NO_ITEM);
        while at != NO_ITEM {
            let node = &mut self.nodes[at as usize];
            node.item_count -= 1;
            if node.first_child != NO_ITEM && node.item_count <= MAX_LEAF_ITEMS / 2 {
                sparse = at;
            }
            at = node.parent;
        }
        if sparse != NO_ITEM {
            self.collapse_node(sparse);
        }
    }

    /// Returns the item nearest to the metric's destination, if it is strictly nearer than `below` (square
    /// metres).
    pub fn nearest_item(&self, metric: &DistanceMetric, below: f64) -> Option<(u32, f64)> {
        self.nearest_item_where(metric, below, |_| true)
    }

    /// Returns the nearest item among those that `accept` accepts, if it is strictly nearer than `below`
    /// (square metres).
    pub fn nearest_item_where(
        &self,
        metric: &DistanceMetric,
        below: f64,
        accept: impl Fn(u32) -> bool,
    ) -> Option<(u32, f64)> {
        self.search_around::<false>(metric, below, &accept)
    }

    /// Returns whether the index has an item that `accept` accepts and that is nearer than `below` (square
    /// metres). The search stops at the first such item.
    pub fn has_item_within(&self, metric: &DistanceMetric, below: f64, accept: impl Fn(u32) -> bool) -> bool {
        self.search_around::<true>(metric, below, &accept).is_some()
    }

    fn search_around<const ANY: bool>(
        &self,
        metric: &DistanceMetric,
        below: f64,
        accept: &impl Fn(u32) -> bool,
    ) -> Option<(u32, f64)> {
        let longitude = i64::from(metric.destination.longitude);
        let mut best = self.search_node::<ANY>(metric, longitude, below, accept);
        // The index does not wrap at the date line. If the search radius reaches the date line, search again
        // with the destination's longitude shifted by a full turn.
        let reach = |to: i64| ((FULL_TURN_UNITS / 2 - to) as f64 * metric.metres_per_longitude_unit).powi(2);
        for (to_date_line, elsewhere) in
            [(longitude, longitude - FULL_TURN_UNITS), (-longitude, longitude + FULL_TURN_UNITS)]
        {
            let bound = best.map_or(below, |(_, squared)| squared);
            if reach(to_date_line) < bound {
                best = self.search_node::<ANY>(metric, elsewhere, bound, accept).or(best);
            }
        }
        best
    }

    fn search_node<const ANY: bool>(
        &self,
        metric: &DistanceMetric,
        longitude: i64,
        mut below: f64,
        accept: &impl Fn(u32) -> bool,
    ) -> Option<(u32, f64)> {
        // The stack holds at most three siblings at each level.
        let mut stack = [(0.0f64, 0u32); 4 * MAX_DEPTH as usize + 4];
        let mut depth = 1;
        let to_x = (longitude + 0x8000_0000) as f64;
        let to_y = (i64::from(metric.destination.latitude) + 0x8000_0000) as f64;
        stack[0] = (0.0, ROOT_NODE);
        let mut best = None;
        while depth > 0 {
            depth -= 1;
            let (bound, at) = stack[depth];
            if bound >= below {
                continue;
            }
            let node = &self.nodes[at as usize];
            if node.first_child == NO_ITEM {
                let mut item = node.first_item;
                while item != NO_ITEM {
                    let entry = &self.items[item as usize];
                    let (dx, dy) = (
                        (f64::from(entry.x) - to_x) * metric.metres_per_longitude_unit,
                        (f64::from(entry.y) - to_y) * metric.metres_per_latitude_unit,
                    );
                    let squared = dx * dx + dy * dy;
                    if squared < below && accept(item) {
                        below = squared;
                        best = Some((item, squared));
                        if ANY {
                            return best;
                        }
                    }
                    item = entry.next_in_leaf;
                }
                continue;
            }
            let start = depth;
            let half = (node.side_length() / 2) as f64;
            for index in 0..4u32 {
                let child = &self.nodes[(node.first_child + index) as usize];
                if child.item_count == 0 {
                    continue;
                }
                let (west, south) = (f64::from(child.x), f64::from(child.y));
                let dx = (west - to_x).max(to_x - (west + half)).max(0.0) * metric.metres_per_longitude_unit;
                let dy = (south - to_y).max(to_y - (south + half)).max(0.0) * metric.metres_per_latitude_unit;
                let bound = dx * dx + dy * dy;
                if bound < below {
                    // Push the nearest child last, so that the search visits it first.
                    let mut position = depth;
                    while position > start && stack[position - 1].0 < bound {
                        stack[position] = stack[position - 1];
                        position -= 1;
                    }
                    stack[position] = (bound, node.first_child + index);
                    depth += 1;
                }
            }
        }
        best
    }

    fn child_containing(node: &TreeNode, x: u32, y: u32) -> u32 {
        let bit = 31 - u32::from(node.depth);
        node.first_child + (((y >> bit) & 1) << 1 | ((x >> bit) & 1))
    }

    fn link_item(&mut self, item: u32, leaf: u32) {
        let head = std::mem::replace(&mut self.nodes[leaf as usize].first_item, item);
        let entry = &mut self.items[item as usize];
        (entry.leaf, entry.next_in_leaf, entry.previous_in_leaf) = (leaf, head, NO_ITEM);
        if head != NO_ITEM {
            self.items[head as usize].previous_in_leaf = item;
        }
    }

    /// Splits a leaf that has too many items, repeatedly if necessary.
    fn split_leaf(&mut self, mut leaf: u32) {
        loop {
            let node = self.nodes[leaf as usize];
            if node.item_count <= MAX_LEAF_ITEMS || node.depth >= MAX_DEPTH {
                return;
            }
            let block = self.allocate_node_block(leaf);
            self.nodes[leaf as usize].first_child = block;
            let mut item = std::mem::replace(&mut self.nodes[leaf as usize].first_item, NO_ITEM);
            let mut fullest = block;
            while item != NO_ITEM {
                let Item { x, y, next_in_leaf: next, .. } = self.items[item as usize];
                let child = Self::child_containing(&self.nodes[leaf as usize], x, y);
                self.link_item(item, child);
                self.nodes[child as usize].item_count += 1;
                if self.nodes[child as usize].item_count > self.nodes[fullest as usize].item_count {
                    fullest = child;
                }
                item = next;
            }
            leaf = fullest;
        }
    }

    /// Returns a block of four empty leaves under `parent`.
    fn allocate_node_block(&mut self, parent: u32) -> u32 {
        let above = self.nodes[parent as usize];
        let depth = above.depth + 1;
        let half = (above.side_length() / 2) as u32;
        let block = self.free_node_blocks.pop().unwrap_or_else(|| {
            let block = self.nodes.len() as u32;
            self.nodes.resize(self.nodes.len() + 4, above);
            block
        });
        for index in 0..4u32 {
            self.nodes[(block + index) as usize] = TreeNode {
                first_child: NO_ITEM,
                parent,
                item_count: 0,
                first_item: NO_ITEM,
                x: above.x + (index & 1) * half,
                y: above.y + (index >> 1) * half,
                depth,
            };
        }
        block
    }

    /// Replaces an inner node with few items by a leaf.
    fn collapse_node(&mut self, at: u32) {
        let block = std::mem::replace(&mut self.nodes[at as usize].first_child, NO_ITEM);
        let mut blocks = [NO_ITEM; 4 * MAX_DEPTH as usize];
        blocks[0] = block;
        let mut waiting = 1;
        while waiting > 0 {
            waiting -= 1;
            let block = blocks[waiting];
            for child in block..block + 4 {
                let TreeNode { first_child: children, first_item: head, .. } = self.nodes[child as usize];
                if children != NO_ITEM {
                    blocks[waiting] = children;
                    waiting += 1;
                    continue;
                }
                let mut item = head;
                while item != NO_ITEM {
                    let next = self.items[item as usize].next_in_leaf;
                    self.link_item(item, at);
                    item = next;
                }
            }
            self.free_node_blocks.push(block);
        }
    }

    /// Returns the position of an item; `None` if it is not in the index.
    pub fn position(&self, item: u32) -> Option<Position> {
        let entry = self.items.get(item as usize).filter(|entry| entry.leaf != NO_ITEM)?;
        Some(Position::new(to_signed(entry.y), to_signed(entry.x)))
    }

    /// Returns the number of nodes, used and free: the memory cost of the index.
    #[cfg(test)]
    fn node_count(&self) -> usize {
        self.nodes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carnet_base::Rng;

    fn random_position(rng: &mut Rng, centre: Position, spread: u64) -> Position {
        let mut shift = |value: i32| value + (rng.number_below(2 * spread) as i64 - spread as i64) as i32;
        let (latitude, longitude) = (shift(centre.latitude), shift(centre.longitude));
        Position::new(latitude, longitude)
    }

    #[test]
    fn spatial_index_finds_same_stations_as_full_search() {
        let mut rng = Rng::new(1);
        for (centre, spread) in [
            (Position::new(488_000_000, 21_000_000), 200_000u64),
            (Position::new(-300_000_000, 1_799_900_000), 90_000),
            (Position::new(0, 0), 100),
        ] {
            let mut index = SpatialIndex::default();
            let mut all: Vec<Option<Position>> = vec![None; 500];
            for round in 0..4_000 {
                let item = rng.number_below(500) as u32;
                if rng.is_true_with_probability(0.3) {
                    index.remove(item);
                    all[item as usize] = None;
                } else {
                    let position = random_position(&mut rng, centre, spread);
                    index.set_position(item, position);
                    all[item as usize] = Some(position);
                }
                assert_eq!(index.len(), all.iter().flatten().count());
                if round % 10 == 0 {
                    let metric = DistanceMetric::new(random_position(&mut rng, centre, 3 * spread / 2));
                    let below = if rng.is_true_with_probability(0.5) {
                        f64::INFINITY
                    } else {
                        (spread as f64 / 100.0).powi(2)
                    };
                    let expected = all
                        .iter()
                        .flatten()
                        .map(|&p| metric.squared_distance(p))
                        .filter(|&d| d < below)
                        .min_by(f64::total_cmp);
                    let found = index.nearest_item(&metric, below).map(|(_, squared)| squared);
                    assert_eq!(found.is_some(), expected.is_some());
                    assert_eq!(index.has_item_within(&metric, below, |_| true), expected.is_some());
                    if let (Some(found), Some(expected)) = (found, expected) {
                        assert!((found - expected).abs() <= 1e-9 * expected, "{found} {expected}");
                    }
                }
            }
        }
    }

    #[test]
    fn spatial_index_finds_stations_across_date_line() {
        let mut index = SpatialIndex::default();
        index.set_position(0, Position::new(0, 1_799_000_000));
        index.set_position(1, Position::new(0, -1_799_999_900));
        let from_east = DistanceMetric::new(Position::new(0, 1_799_999_900));
        assert_eq!(index.nearest_item(&from_east, f64::INFINITY).map(|found| found.0), Some(1));
        index.set_position(1, Position::new(0, -1_700_000_000));
        index.set_position(2, Position::new(0, 1_799_999_900));
        let from_west = DistanceMetric::new(Position::new(0, -1_799_999_900));
        assert_eq!(index.nearest_item(&from_west, f64::INFINITY).map(|found| found.0), Some(2));
    }

    /// Fabricated stations appear at one place, then all over the globe, then disappear.
    #[test]
    fn spatial_index_memory_is_bounded() {
        let mut rng = Rng::new(2);
        let mut index = SpatialIndex::default();
        for round in 0..20 {
            for item in 0..10_000u32 {
                let position = match round % 2 {
                    0 => Position::new(488_000_000, 21_000_000),
                    _ => random_position(&mut rng, Position::new(0, 0), 900_000_000),
                };
                index.set_position(item, position);
            }
            assert!(index.node_count() < 10_000, "{}", index.node_count());
        }
        (0..10_000).for_each(|item| index.remove(item));
        assert!(index.is_empty());
        assert_eq!(index.nearest_item(&DistanceMetric::new(Position::new(0, 0)), f64::INFINITY), None);
    }
}
